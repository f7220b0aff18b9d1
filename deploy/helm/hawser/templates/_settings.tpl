{{/*
The settings file. Helm's own toToml writes every number as a float, which Hawser refuses where it
wants a whole one; so values are written here.
*/}}

{{/* One value, in line. JSON's strings, booleans and lists are TOML's. */}}
{{- define "hawser.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha -}}
{{- if $index }},{{ end }} {{ toJson $key }} = {{ include "hawser.toml.value" (get $ $key) }}
{{- end }} }
{{- else if kindIs "slice" . -}}
[{{- range $index, $item := . -}}
{{- if $index }}, {{ end }}{{ include "hawser.toml.value" $item }}
{{- end -}}]
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ printf "%d" (int64 .) }}{{ else }}{{ toJson . }}{{ end -}}
{{- else if kindIs "invalid" . -}}
{{- fail "settings and classes cannot be null" -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}

{{/* The keys of a table, one a line. */}}
{{- define "hawser.toml.table" -}}
{{- range $key := keys . | sortAlpha }}
{{ $key }} = {{ include "hawser.toml.value" (get $ $key) }}
{{- end }}
{{- end -}}

{{/*
One class; takes name and class. What a local pool holds depends on who asks unless it is said, and the
controller, which is not root, must not think otherwise than the nodes.
*/}}
{{- define "hawser.toml.class" }}

[class.{{ toJson .name }}]
{{- $class := .class }}
{{- if eq $class.provider "local" }}
{{- $class = merge (dict) $class (dict "kind" "image") }}
{{- end }}
{{- include "hawser.toml.table" $class }}
{{- end -}}

{{/* Where the controller keeps its records: said beside the settings file, which may be a user's own. Its
pods have no disk that outlives them. */}}
{{- define "hawser.store" -}}
{{- .Values.settings.store | default (printf "kubernetes:%s" .Release.Namespace) -}}
{{- end -}}

{{/* The settings of the controller: every class, with its credentials. */}}
{{- define "hawser.settings.controller" -}}
# Made by the chart, from the values settings and classes.
log = {{ toJson .Values.settings.log }}
log_format = {{ toJson .Values.settings.logFormat }}
default_class = {{ .Values.settings.defaultClass | default (keys .Values.classes | sortAlpha | first) | toJson }}
{{- include "hawser.toml.table" .Values.settings.extra }}
{{- range $name := keys .Values.classes | sortAlpha }}
{{- include "hawser.toml.class" (dict "name" $name "class" (get $.Values.classes $name)) }}
{{- end }}
{{ end -}}

{{/*
The settings of a node: the classes whose storage is on nodes, and no others. The credentials of a
storage system never leave the controller.
*/}}
{{- define "hawser.settings.node" -}}
{{- $names := include "hawser.classes.onNodes" . | fromJsonArray -}}
# Made by the chart, from the values settings and classes.
log = {{ toJson .Values.settings.log }}
log_format = {{ toJson .Values.settings.logFormat }}

[class]
{{- range $name := $names }}
{{- include "hawser.toml.class" (dict "name" $name "class" (get $.Values.classes $name)) }}
{{- end }}
{{ end -}}

{{/* The names of the classes whose storage is on nodes, as JSON. */}}
{{- define "hawser.classes.onNodes" -}}
{{- $names := list -}}
{{- range $name := keys .Values.classes | sortAlpha -}}
{{- if has (get $.Values.classes $name).provider $.Values.node.providers -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Pool folders of those classes that are not below the state folder, as JSON. */}}
{{- define "hawser.pools" -}}
{{- $paths := list -}}
{{- range $name := include "hawser.classes.onNodes" . | fromJsonArray -}}
{{- with (get $.Values.classes $name).path -}}
{{- if not (hasPrefix (printf "%s/" $.Values.node.stateDir) .) -}}
{{- $paths = append $paths . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $paths | uniq | toJson -}}
{{- end -}}

{{- define "hawser.settings.controllerSecret" -}}
{{- .Values.settings.existingControllerSecret | default (printf "%s-settings" (include "hawser.controller.name" .)) -}}
{{- end -}}
{{- define "hawser.settings.nodeSecret" -}}
{{- .Values.settings.existingNodeSecret | default (printf "%s-settings" (include "hawser.node.name" .)) -}}
{{- end -}}
