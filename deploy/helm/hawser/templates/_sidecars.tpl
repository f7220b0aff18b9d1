{{/* The upstream sidecars, for sidecars.enabled; each driver has its own. */}}

{{/*
What every container has but the one that mounts. Who runs it is said by the pod: on a node it is root, since
the kubelet's folder and the sockets in it are root's, and root without capabilities is their owner, no more.
*/}}
{{- define "hawser.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/*
One sidecar of the controller. Takes root, name (of the container), set (its values), socket, port and
args (its own flags).
*/}}
{{- define "hawser.sidecar" -}}
{{- $all := .root.Values.sidecars -}}
- name: {{ .name }}
  image: {{ include "hawser.image" (dict "image" .set.image "default" "") }}
  imagePullPolicy: {{ .set.image.pullPolicy }}
  args:
    - --csi-address={{ .socket }}
    - --timeout={{ .set.timeout }}
    - --kube-api-qps={{ $all.kubeApiQps }}
    - --kube-api-burst={{ $all.kubeApiBurst }}
    - --leader-election
    - --leader-election-namespace={{ .root.Release.Namespace }}
    - --http-endpoint=:{{ .port }}
    - --v={{ $all.logLevel }}
    {{- toYaml .args | nindent 4 }}
    {{- with .set.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    {{- with .set.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - containerPort: {{ .port }}
  livenessProbe:
    httpGet:
      path: /healthz/leader-election
      port: {{ .port }}
    initialDelaySeconds: 10
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 3
  {{- with .set.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "hawser.unprivileged" .root | nindent 4 }}
  volumeMounts:
    - name: socket
      mountPath: /csi
{{- end -}}

{{/* The ports of the controller's sidecars, as JSON. */}}
{{- define "hawser.sidecars.ports" -}}
{{- $ports := list 9811 9812 -}}
{{- if .Values.sidecars.snapshotter.enabled -}}{{- $ports = append $ports 9813 -}}{{- end -}}
{{- if .Values.sidecars.resizer.enabled -}}{{- $ports = append $ports 9814 -}}{{- end -}}
{{- if .Values.drivers.local.enabled -}}
{{- $ports = append $ports 9821 -}}
{{- if .Values.sidecars.snapshotter.enabled -}}{{- $ports = append $ports 9823 -}}{{- end -}}
{{- if .Values.sidecars.resizer.enabled -}}{{- $ports = append $ports 9824 -}}{{- end -}}
{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{/*
All sidecars of the controller. With strict topology only the node that the scheduler chose is asked for,
and a class that binds at once leaves the choice to Hawser; the other way every claim would carry all
nodes of the cluster. A volume is grown while it is used, so the resizer need not watch every pod.
*/}}
{{- define "hawser.sidecars.controller" -}}
{{- $set := .Values.sidecars -}}
{{- $provision := list (printf "--worker-threads=%d" (int $set.provisioner.workerThreads)) "--extra-create-metadata" "--strict-topology" "--immediate-topology=false" -}}
{{- $capacity := list "--enable-capacity" "--capacity-ownerref-level=2" -}}
{{- $attach := list (printf "--worker-threads=%d" (int $set.attacher.workerThreads)) "--reconcile-sync=1m" -}}
{{- $snapshot := list (printf "--worker-threads=%d" (int $set.snapshotter.workerThreads)) "--extra-create-metadata" (printf "--feature-gates=CSIVolumeGroupSnapshot=%t" $set.snapshotter.groups) -}}
{{- $resize := list (printf "--workers=%d" (int $set.resizer.workerThreads)) "--handle-volume-inuse-error=false" "--extra-modify-metadata" -}}
{{ include "hawser.sidecar" (dict "root" . "name" "csi-provisioner" "set" $set.provisioner "socket" "/csi/csi.sock" "port" 9811 "args" (ternary (concat $provision $capacity) $provision .Values.drivers.network.storageCapacity)) }}
{{ include "hawser.sidecar" (dict "root" . "name" "csi-attacher" "set" $set.attacher "socket" "/csi/csi.sock" "port" 9812 "args" $attach) }}
{{- if $set.snapshotter.enabled }}
{{ include "hawser.sidecar" (dict "root" . "name" "csi-snapshotter" "set" $set.snapshotter "socket" "/csi/csi.sock" "port" 9813 "args" $snapshot) }}
{{- end }}
{{- if $set.resizer.enabled }}
{{ include "hawser.sidecar" (dict "root" . "name" "csi-resizer" "set" $set.resizer "socket" "/csi/csi.sock" "port" 9814 "args" $resize) }}
{{- end }}
{{- if .Values.drivers.local.enabled }}
{{ include "hawser.sidecar" (dict "root" . "name" "local-csi-provisioner" "set" $set.provisioner "socket" "/csi/local.sock" "port" 9821 "args" (ternary (concat $provision $capacity) $provision .Values.drivers.local.storageCapacity)) }}
{{- if $set.snapshotter.enabled }}
{{ include "hawser.sidecar" (dict "root" . "name" "local-csi-snapshotter" "set" $set.snapshotter "socket" "/csi/local.sock" "port" 9823 "args" $snapshot) }}
{{- end }}
{{- if $set.resizer.enabled }}
{{ include "hawser.sidecar" (dict "root" . "name" "local-csi-resizer" "set" $set.resizer "socket" "/csi/local.sock" "port" 9824 "args" $resize) }}
{{- end }}
{{- end }}
{{ include "hawser.livenessprobe" (dict "root" . "socket" "/csi/csi.sock" "volume" "socket" "port" .Values.metrics.controllerProbePort) }}
{{- end -}}

{{/* Asks the driver whether it lives; takes root, socket, volume (with the socket, at /csi) and port. */}}
{{- define "hawser.livenessprobe" -}}
{{- $set := .root.Values.sidecars.livenessProbe -}}
- name: liveness-probe
  image: {{ include "hawser.image" (dict "image" $set.image "default" "") }}
  imagePullPolicy: {{ $set.image.pullPolicy }}
  args:
    - --csi-address={{ .socket }}
    - --health-port={{ .port }}
    - --probe-timeout=3s
    - --v={{ .root.Values.sidecars.logLevel }}
    {{- with $set.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $set.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "hawser.unprivileged" .root | nindent 4 }}
  volumeMounts:
    - name: {{ .volume }}
      mountPath: /csi
{{- end -}}

{{/* Tells the kubelet of a driver; takes root, name, driver and volume (with the socket, at /csi). */}}
{{- define "hawser.registrar" -}}
{{- $set := .root.Values.sidecars.registrar -}}
- name: {{ .name }}
  image: {{ include "hawser.image" (dict "image" $set.image "default" "") }}
  imagePullPolicy: {{ $set.image.pullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --kubelet-registration-path={{ .root.Values.node.kubeletDir }}/plugins/{{ .driver }}/csi.sock
    - --plugin-registration-path=/registration
    - --timeout=5s
    - --v={{ .root.Values.sidecars.logLevel }}
    {{- with $set.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $set.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "hawser.unprivileged" .root | nindent 4 }}
  volumeMounts:
    - name: {{ .volume }}
      mountPath: /csi
    - name: registration
      mountPath: /registration
{{- end -}}
