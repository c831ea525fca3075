{{/*
Several replicas with the same decisions: a Lease names the leader, and the others fetch its decisions over TLS, with the
certificate of all ports. It must be valid for clients too. Since the CA may sign other certificates, the name is checked.
*/}}

{{/* "yes" with more than one replica, otherwise empty. */}}
{{- define "tidegate.peers" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- if not (hasKey .Values.config "kubernetes") }}
{{- fail (printf "replicas: must be 1 where config.kubernetes is null, got %d: a Lease of the API server says which one leads" (int .Values.replicas)) }}
{{- end }}
{{- if eq .Values.tls.type "none" }}
{{- fail (printf "replicas: must be 1 where tls.type is none, got %d: replicas share their decisions over mutual TLS" (int .Values.replicas)) }}
{{- end -}}
yes
{{- end }}
{{- end }}
