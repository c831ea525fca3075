{{/* `state` of the configuration, as YAML; empty without a state. */}}
{{- define "tidegate.state" -}}
{{- if ne .Values.state.volume "none" }}
{{- toYaml (dict "directory" "/var/lib/tidegate" "interval" .Values.state.interval) }}
{{- end }}
{{- end }}

{{/* The name of the claim; empty if there is none. */}}
{{- define "tidegate.stateClaim" -}}
{{- if eq .Values.state.volume "persistentVolumeClaim" }}
{{- default (printf "%s-state" (include "tidegate.fullname" .)) .Values.state.existingClaim }}
{{- end }}
{{- end }}
