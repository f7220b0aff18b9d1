{{/* The certificates of the node link: controller and nodes check each other. */}}

{{- define "hawser.tls.controllerSecret" -}}
{{- if eq .Values.tls.mode "existing" -}}
{{- required "tls.existing.controllerSecret is needed when tls.mode is existing" .Values.tls.existing.controllerSecret -}}
{{- else -}}
{{- printf "%s-tls" (include "hawser.controller.name" .) -}}
{{- end -}}
{{- end -}}

{{- define "hawser.tls.nodeSecret" -}}
{{- if eq .Values.tls.mode "existing" -}}
{{- required "tls.existing.nodeSecret is needed when tls.mode is existing" .Values.tls.existing.nodeSecret -}}
{{- else -}}
{{- printf "%s-tls" (include "hawser.node.name" .) -}}
{{- end -}}
{{- end -}}

{{/* The names a controller's certificate has, as JSON: those of its Service, and the one that nodes dial. */}}
{{- define "hawser.tls.names" -}}
{{- $name := include "hawser.controller.name" . -}}
{{- $host := include "hawser.link.host" . -}}
{{- $names := list $host $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s" $host .Values.clusterDomain) -}}
{{- with include "hawser.tls.dialled" . -}}
{{- if not (regexMatch "^[0-9.]+$|:" .) -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- $names | uniq | toJson -}}
{{- end -}}

{{/* Its addresses, as JSON: what nodes dial, where that is an address. */}}
{{- define "hawser.tls.addresses" -}}
{{- $addresses := list -}}
{{- with include "hawser.tls.dialled" . -}}
{{- if regexMatch "^[0-9.]+$|:" . -}}
{{- $addresses = append $addresses . -}}
{{- end -}}
{{- end -}}
{{- toJson $addresses -}}
{{- end -}}

{{/* The host of link.server, without port and brackets. */}}
{{- define "hawser.tls.dialled" -}}
{{- .Values.link.server | regexFind "^.*:" | trimSuffix ":" | trimPrefix "[" | trimSuffix "]" -}}
{{- end -}}
