{{/*
TLS of the gRPC port, of the metrics API and between replicas: which Secrets there are, and where they lie.

The server's Secret (tls.crt, tls.key, ca.crt: the CA of gRPC's clients) is in the namespace of the release and is mounted;
all ports show its certificate, which is for the Service.
KEDA's (the same keys, ca.crt: the CA of the server) is in KEDA's namespace: there a ClusterTriggerAuthentication looks.
*/}}

{{/* "yes" where KEDA asks over TLS, else nothing. */}}
{{- define "tidegate.tls" -}}
{{- if and (eq .Values.mode "keda") (ne .Values.tls.type "none") }}yes{{ end }}
{{- end }}

{{/* "yes" where any port shows a certificate, else nothing. */}}
{{- define "tidegate.certificate" -}}
{{- if or (include "tidegate.tls" .) (include "tidegate.metricsApi" .) (include "tidegate.peers" .) }}yes{{ end }}
{{- end }}

{{- define "tidegate.serverSecret" -}}
{{- if eq .Values.tls.type "existingSecret" }}
{{- required "tls.existingSecret: must name a Secret with tls.crt, tls.key and ca.crt when tls.type is existingSecret" .Values.tls.existingSecret }}
{{- else }}
{{- printf "%s-tls" (include "tidegate.fullname" .) }}
{{- end }}
{{- end }}

{{/* Nothing where tls.type is existingSecret and no Secret is named for KEDA. */}}
{{- define "tidegate.clientSecret" -}}
{{- if eq .Values.tls.type "existingSecret" }}
{{- .Values.tls.existingClientSecret }}
{{- else }}
{{- printf "%s-keda" (include "tidegate.clusterName" .) }}
{{- end }}
{{- end }}

{{/* What a scalerAddress may call the host. An APIService calls it by the first. */}}
{{- define "tidegate.hosts" -}}
{{- $name := include "tidegate.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
- {{ $name }}.{{ $namespace }}.svc
- {{ $name }}.{{ $namespace }}.svc.cluster.local
- {{ $name }}.{{ $namespace }}
{{- end }}
