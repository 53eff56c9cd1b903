{{- /*
The objects of a recipe, from the same files that `kubectl kustomize` reads (the folder manifests). These templates know
the part of kustomize that our manifests use: resources, components, patches, images, configMapGenerator. A test
compares every object with kustomize's.

Templates return text only, so that lists of objects are passed in a dict, `acc`, and changed there.
*/ -}}

{{- /* Add the objects of a folder to acc.objects. A component works on the objects that are there. */ -}}
{{- define "numa.build" -}}
{{- $file := printf "manifests/%s/kustomization.yaml" .dir }}
{{- $kustomization := fromYaml (.context.Files.Get $file | required (printf "the chart has no %s" $file)) }}
{{- range $key, $_ := omit $kustomization "apiVersion" "kind" "resources" "components" "patches" "images" "configMapGenerator" }}
{{- fail (printf "%s: the chart does not know %s" $file $key) }}
{{- end }}
{{- $folder := . }}
{{- range $kustomization.resources }}
{{- $path := clean (printf "%s/%s" $folder.dir .) }}
{{- if hasSuffix ".yaml" $path }}
{{- range splitList "\n---\n" ($folder.context.Files.Get (printf "manifests/%s" $path)) }}
{{- with fromYaml . }}
{{- $_ := set $folder.acc "objects" (append $folder.acc.objects .) }}
{{- end }}
{{- end }}
{{- else }}
{{- $own := dict "objects" list }}
{{- include "numa.build" (dict "dir" $path "acc" $own "context" $folder.context) }}
{{- $_ := set $folder.acc "objects" (concat $folder.acc.objects $own.objects) }}
{{- end }}
{{- end }}
{{- range $kustomization.components }}
{{- include "numa.build" (dict "dir" (clean (printf "%s/%s" $folder.dir .)) "acc" $folder.acc "context" $folder.context) }}
{{- end }}
{{- $made := dict }}
{{- range $kustomization.configMapGenerator }}
{{- include "numa.configMap" (merge (dict "folder" $folder "made" $made) .) }}
{{- end }}
{{- range $kustomization.patches }}
{{- $text := .patch | default (printf "%s/%s" $folder.dir .path | printf "manifests/%s" | $folder.context.Files.Get) }}
{{- include "numa.patch" (dict "target" .target "patch" (fromYaml (printf "patch:\n%s" (indent 2 $text))).patch "acc" $folder.acc) }}
{{- end }}
{{- range $kustomization.images }}
{{- include "numa.image" (dict "acc" $folder.acc "name" .name "newName" .newName "newTag" .newTag) }}
{{- end }}
{{- range $object := $folder.acc.objects }}
{{- range (dig "spec" "template" "spec" "volumes" list $object) }}
{{- if and .configMap (hasKey $made (default "" (dig "configMap" "name" "" .))) }}
{{- $_ := set .configMap "name" (get $made .configMap.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A generated ConfigMap. Its name ends in the hash of its content, as kustomize computes it. */ -}}
{{- define "numa.configMap" -}}
{{- $data := dict }}
{{- range .files }}
{{- $_ := set $data . ($.folder.context.Files.Get (printf "manifests/%s/%s" $.folder.dir .)) }}
{{- end }}
{{- $options := .options | default dict }}
{{- $name := .name }}
{{- if not $options.disableNameSuffixHash }}
{{- $hash := dict "data" $data "kind" "ConfigMap" "name" "" | toJson | sha256sum | trunc 10 }}
{{- $hash = $hash | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- $name = printf "%s-%s" .name $hash }}
{{- $_ := set .made .name $name }}
{{- end }}
{{- $metadata := dict "name" $name "namespace" .namespace }}
{{- with $options.labels }}{{ $_ := set $metadata "labels" . }}{{ end }}
{{- $object := dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" $metadata "data" $data }}
{{- $_ := set .folder.acc "objects" (append .folder.acc.objects $object) }}
{{- end }}

{{- /* Set name and tag of an image in every container. Nothing changes where newName or newTag is empty. */ -}}
{{- define "numa.image" -}}
{{- range .acc.objects }}
{{- $pod := ternary .spec (dig "spec" "template" "spec" dict .) (eq .kind "Pod") }}
{{- range concat ($pod.initContainers | default list) ($pod.containers | default list) }}
{{- $name := regexReplaceAll ":[^:/]*$" .image "" }}
{{- if eq $name $.name }}
{{- $tag := default (trimPrefix (printf "%s:" $name) .image) $.newTag }}
{{- $_ := set . "image" (printf "%s:%s" (default $name $.newName) $tag) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Apply a patch to the objects of its target: a list of JSON patch operations, or entries of lists to delete. */ -}}
{{- define "numa.patch" -}}
{{- $hits := list }}
{{- range $object := .acc.objects }}
{{- if and (eq .kind $.target.kind) (eq .metadata.name $.target.name) }}
{{- $hits = append $hits $object }}
{{- if kindIs "slice" $.patch }}
{{- range $.patch }}
{{- if eq .op "move" }}
{{- $moved := dict "object" $object "path" .from "op" "remove" }}
{{- include "numa.operation" $moved }}
{{- include "numa.operation" (dict "object" $object "path" .path "op" "add" "value" $moved.old) }}
{{- else }}
{{- include "numa.operation" (dict "object" $object "path" .path "op" .op "value" .value) }}
{{- end }}
{{- end }}
{{- else }}
{{- include "numa.delete" (dict "object" $object "patch" $.patch) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $hits }}{{ fail (printf "no object to patch: %s %s" .target.kind .target.name) }}{{ end }}
{{- end }}

{{- /* One operation of a JSON patch. `remove` leaves what was there in `old`. */ -}}
{{- define "numa.operation" -}}
{{- $segments := rest (splitList "/" .path) }}
{{- $last := last $segments | replace "~1" "/" }}
{{- $place := .object }}
{{- $holder := dict }}
{{- $name := "" }}
{{- range initial $segments }}
{{- $key := replace "~1" "/" . }}
{{- if kindIs "slice" $place }}
{{- $place = index $place (int $key) }}
{{- else }}
{{- $holder = $place }}
{{- $name = $key }}
{{- $place = index $place $key }}
{{- end }}
{{- end }}
{{- if kindIs "slice" $place }}
{{- $at := ternary (len $place) (int $last) (eq $last "-") }}
{{- if not (has .op (list "add" "replace" "remove")) }}{{ fail (printf "the chart does not know %s on a list" .op) }}{{ end }}
{{- if ne .op "add" }}{{ $_ := set . "old" (index $place $at) }}{{ end }}
{{- $changed := list }}
{{- range $i, $entry := $place }}
{{- if and (eq $i $at) (ne $.op "remove") }}{{ $changed = append $changed $.value }}{{ end }}
{{- if or (ne $i $at) (eq $.op "add") }}{{ $changed = append $changed $entry }}{{ end }}
{{- end }}
{{- if eq $at (len $place) }}{{ $changed = append $changed .value }}{{ end }}
{{- $_ := set $holder $name $changed }}
{{- else if or (eq .op "add") (eq .op "replace") }}
{{- $_ := set $place $last .value }}
{{- else if eq .op "test" }}
{{- if ne (index $place $last) .value }}{{ fail (printf "%s is %v, not %v" .path (index $place $last) .value) }}{{ end }}
{{- else }}{{ fail (printf "the chart does not know the operation %s" .op) }}
{{- end }}
{{- end }}

{{- /* A strategic merge patch whose only effect is `$patch: delete` on entries of lists, by their name. */ -}}
{{- define "numa.delete" -}}
{{- range $key, $value := .patch }}
{{- if kindIs "map" $value }}
{{- include "numa.delete" (dict "object" (index $.object $key) "patch" $value) }}
{{- else if kindIs "slice" $value }}
{{- range $entry := $value }}
{{- $kept := list }}
{{- range index $.object $key }}
{{- if ne .name $entry.name }}
{{- $kept = append $kept . }}
{{- else if ne (get $entry "$patch") "delete" }}
{{- include "numa.delete" (dict "object" . "patch" $entry) }}
{{- $kept = append $kept . }}
{{- end }}
{{- end }}
{{- $_ := set $.object $key $kept }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
