// Example pods.

/** @param {string} name @param {Record<string, string>} amounts */
function pod(name, amounts) {
  const limits = Object.entries(amounts).map(([resource, amount]) => `          ${resource}: "${amount}"`).join("\n");
  return `apiVersion: v1
kind: Pod
metadata:
  name: ${name}
spec:
  containers:
    - name: app
      image: registry.example/app:1
      resources:
        limits:
${limits}
`;
}

export const EXAMPLES = [
  { title: "16 exclusive CPUs", manifest: pod("solver", { cpu: "16", memory: "48Gi" }) },
  { title: "4 GPUs with 24 close CPUs", manifest: pod("finetune", { cpu: "24", memory: "200Gi", "vendor.example/gpu": "4" }) },
  { title: "Half a socket", manifest: pod("database", { cpu: "32", memory: "96Gi" }) },
];
