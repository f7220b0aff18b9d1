{{/* Names, labels and images that several templates share. */}}

{{- define "hawser.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "hawser.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "hawser.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hawser.controller.name" -}}
{{- printf "%s-controller" (include "hawser.fullname" .) -}}
{{- end -}}

{{- define "hawser.node.name" -}}
{{- printf "%s-node" (include "hawser.fullname" .) -}}
{{- end -}}

{{- define "hawser.labels" -}}
app.kubernetes.io/name: {{ include "hawser.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What a Service, a Deployment or a budget selects by; must never change. */}}
{{- define "hawser.controller.selector" -}}
app.kubernetes.io/name: {{ include "hawser.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "hawser.node.selector" -}}
app.kubernetes.io/name: {{ include "hawser.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end -}}

{{/* An image by digest if there is one, else by tag; takes (dict "image" … "default" TAG). */}}
{{- define "hawser.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .default) -}}
{{- end -}}
{{- end -}}

{{- define "hawser.controller.account" -}}
{{- if .Values.controller.serviceAccount.create -}}
{{- .Values.controller.serviceAccount.name | default (include "hawser.controller.name" .) -}}
{{- else -}}
{{- required "controller.serviceAccount.name is needed when create is false" .Values.controller.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "hawser.node.account" -}}
{{- if .Values.node.serviceAccount.create -}}
{{- .Values.node.serviceAccount.name | default (include "hawser.node.name" .) -}}
{{- else -}}
{{- required "node.serviceAccount.name is needed when create is false" .Values.node.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/*
One replica with sidecars: each of them elects a leader of its own, so two replicas could lead in two
pods at once, while a node keeps its link to one controller.
*/}}
{{- define "hawser.controller.replicas" -}}
{{- if .Values.sidecars.enabled -}}
{{- int .Values.sidecars.replicas -}}
{{- else -}}
{{- int .Values.controller.replicas -}}
{{- end -}}
{{- end -}}

{{- define "hawser.link.host" -}}
{{- printf "%s.%s.svc" (include "hawser.controller.name" .) .Release.Namespace -}}
{{- end -}}

{{- define "hawser.link.server" -}}
{{- .Values.link.server | default (printf "%s:%d" (include "hawser.link.host" .) (int .Values.link.port)) -}}
{{- end -}}

{{/* The driver names are part of every PersistentVolume: they cannot be chosen. */}}
{{- define "hawser.driver" -}}csi.hawser.storage{{- end -}}
{{- define "hawser.driver.local" -}}local.csi.hawser.storage{{- end -}}

{{/* The taint that keeps pods off a node until the driver is there. */}}
{{- define "hawser.taint" -}}hawser.storage/not-ready{{- end -}}

{{- define "hawser.sockets.network" -}}
{{- printf "%s/plugins/%s/csi.sock" .Values.node.kubeletDir (include "hawser.driver" .) -}}
{{- end -}}
{{- define "hawser.sockets.local" -}}
{{- printf "%s/plugins/%s/csi.sock" .Values.node.kubeletDir (include "hawser.driver.local" .) -}}
{{- end -}}

{{/* Says "true" when claims of our classes get their provisioner annotations at admission. */}}
{{- define "hawser.stamp" -}}
{{- $can := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- if eq .Values.admission.stampProvisioner "always" -}}true
{{- else if and (eq .Values.admission.stampProvisioner "auto") $can (not .Values.sidecars.enabled) -}}true
{{- end -}}
{{- end -}}
