{{- /* What values change of the recipe's objects. */ -}}

{{- define "numa.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* Container and pod of one workload: acc.container, acc.pod. */ -}}
{{- define "numa.workload" -}}
{{- $values := .values }}
{{- $pod := .object.spec.template.spec }}
{{- range concat ($pod.initContainers | default list) $pod.containers }}
{{- if eq .name $.container }}
{{- $container := . }}
{{- $kept := list }}
{{- range $container.env }}{{ if not (hasKey $.env .name) }}{{ $kept = append $kept . }}{{ end }}{{ end }}
{{- range $name, $value := $.env }}
{{- $text := ternary ($value | toString) (toJson $value) (kindIs "string" $value) }}
{{- $kept = append $kept (dict "name" $name "value" $text) }}
{{- end }}
{{- $_ := set $container "env" $kept }}
{{- with $values.resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- with $values.image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end }}
{{- end }}
{{- end }}
{{- with $values.nodeSelector }}{{ $_ := set $pod "nodeSelector" (merge (deepCopy .) $pod.nodeSelector) }}{{ end }}
{{- with $values.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end }}
{{- with $values.affinity }}{{ $_ := set $pod "affinity" . }}{{ end }}
{{- with $values.podAnnotations }}{{ $_ := set $.object.spec.template.metadata "annotations" . }}{{ end }}
{{- with .context.Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- end }}

{{- define "numa.customize" -}}
{{- $values := .context.Values }}
{{- $images := list (list "numa-extender" $values.extender.image) (list "numa-node-exporter" $values.exporter.image) (list "registry.k8s.io/kube-scheduler" $values.scheduler.image) }}
{{- range $images }}
{{- $image := last . }}
{{- include "numa.image" (dict "acc" $.acc "name" (first .) "newName" $image.repository "newTag" $image.tag) }}
{{- end }}
{{- $settings := dict }}
{{- range $name, $value := $values.settings }}
{{- $_ := set $settings (printf "NUMA_EXTENDER_%s" (upper $name)) $value }}
{{- end }}
{{- range $object := .acc.objects }}
{{- if and (eq .kind "Deployment") (eq .metadata.name "numa-extender") }}
{{- include "numa.workload" (dict "object" . "container" "extender" "values" $values.extender "env" $settings "context" $.context) }}
{{- else if eq .kind "DaemonSet" }}
{{- include "numa.workload" (dict "object" . "container" "exporter" "values" $values.exporter "env" $values.exporter.env "context" $.context) }}
{{- if eq $values.certificates.mode "cert-manager" }}
{{- range .spec.template.spec.volumes }}
{{- if eq .name "extender-ca" }}
{{- $_ := unset . "configMap" }}
{{- $_ := set . "secret" (dict "secretName" "numa-extender-ca" "items" (list (dict "key" "ca.crt" "path" "ca.crt"))) }}
{{- end }}
{{- end }}
{{- end }}
{{- else if eq .kind "PrometheusRule" }}
{{- if $values.runbookUrl }}
{{- range .spec.groups }}
{{- range .rules }}
{{- $_ := set .annotations "runbook_url" (printf "%s#%s" $values.runbookUrl (last (splitList "#" .annotations.runbook_url))) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set .metadata "labels" (merge (fromYaml (include "numa.labels" $.context)) (.metadata.labels | default dict)) }}
{{- end }}
{{- end }}
