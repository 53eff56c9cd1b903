// Pods to begin with, for those who have none at hand.

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
  { title: "16 CPUs for itself", manifest: pod("solver", { cpu: "16", memory: "48Gi" }) },
  { title: "4 GPUs and 24 CPUs near them", manifest: pod("finetune", { cpu: "24", memory: "200Gi", "vendor.example/gpu": "4" }) },
  { title: "Half a socket", manifest: pod("database", { cpu: "32", memory: "96Gi" }) },
];
