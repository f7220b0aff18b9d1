{{/*
Folders of the host that the node half and its tools use, as JSON: the daemons of a protocol (iscsid,
multipathd) run on the host, and are found by the same files.
*/}}
{{- define "hawser.node.hostPaths" -}}
{{- $use := .Values.node.hostPaths -}}
{{- $paths := list -}}
{{- if $use.udev -}}
{{- $paths = append $paths (dict "name" "udev" "path" "/run/udev" "readOnly" true) -}}
{{- end -}}
{{- if $use.modules -}}
{{- $paths = append $paths (dict "name" "modules" "path" "/lib/modules" "readOnly" true) -}}
{{- end -}}
{{- if $use.iscsi -}}
{{- $paths = append $paths (dict "name" "iscsi-settings" "path" "/etc/iscsi") -}}
{{- $paths = append $paths (dict "name" "iscsi-state" "path" "/var/lib/iscsi") -}}
{{- $paths = append $paths (dict "name" "iscsi-locks" "path" "/run/lock/iscsi") -}}
{{- end -}}
{{- if $use.nvme -}}
{{- $paths = append $paths (dict "name" "nvme" "path" "/etc/nvme") -}}
{{- end -}}
{{- if $use.multipath -}}
{{- $paths = append $paths (dict "name" "multipath" "path" "/etc/multipath") -}}
{{- end -}}
{{- if $use.selinux -}}
{{- $paths = append $paths (dict "name" "selinux" "path" "/etc/selinux" "readOnly" true) -}}
{{- end -}}
{{- toJson $paths -}}
{{- end -}}
