{{/*
Several replicas that answer as one: a Lease says which one leads, and the others ask it over TLS, with the certificate that
every port shows. It must be good for clients too, and the authority may sign for others: the name is compared as well.
*/}}

{{/* "yes" where there is more than one replica, else nothing. */}}
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
