replicas() { # namespace, UID of the controller: the UID and the node of each pod
  kubectl get pods -n "$1" -o jsonpath="{range .items[?(@.metadata.ownerReferences[0].uid==\"$2\")]}{.metadata.uid} {.spec.nodeName}{\"\n\"}{end}"
}
move() { # namespace, pod, the node that its replacement is to get
  owner=$(kubectl get pod "$2" -n "$1" -o jsonpath='{.metadata.ownerReferences[0].uid}')
  before=$(replicas "$1" "$owner")
  kubectl create --raw "/api/v1/namespaces/$1/pods/$2/eviction" -f - <<END
{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"namespace":"$1","name":"$2"}}
END
  found=""
  for _ in $(seq 120); do
    found=$(replicas "$1" "$owner" | while read -r uid node; do
      case "$before" in *"$uid"*) ;; *) echo "$node" ;; esac
    done | sed '/^$/d' | head -n 1)
    [ -z "$found" ] || break
    sleep 5
  done
  if [ "$found" != "$3" ]; then
    echo "$1/$2: its replacement is on ${found:-no node}, not on $3. Ask again." >&2
    exit 1
  fi
}
