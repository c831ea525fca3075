{{/*
TLS of the gRPC port, of the metrics API and between replicas: the Secrets and their namespaces.

The server's Secret (tls.crt, tls.key, ca.crt: the CA of gRPC's clients) is in the namespace of the release and is mounted;
all ports use its certificate, which is for the Service.
KEDA's (the same keys, ca.crt: the CA of the server) is in KEDA's namespace, where a ClusterTriggerAuthentication finds it.
*/}}

{{/* "yes" if KEDA uses TLS, otherwise empty. */}}
{{- define "tidegate.tls" -}}
{{- if and (eq .Values.mode "keda") (ne .Values.tls.type "none") }}yes{{ end }}
{{- end }}

{{/* "yes" if any port uses a certificate, otherwise empty. */}}
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

{{/* Empty if tls.type is existingSecret and no Secret is named for KEDA. */}}
{{- define "tidegate.clientSecret" -}}
{{- if eq .Values.tls.type "existingSecret" }}
{{- .Values.tls.existingClientSecret }}
{{- else }}
{{- printf "%s-keda" (include "tidegate.clusterName" .) }}
{{- end }}
{{- end }}

{{/* Host names for a scalerAddress. An APIService uses the first. */}}
{{- define "tidegate.hosts" -}}
{{- $name := include "tidegate.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
- {{ $name }}.{{ $namespace }}.svc
- {{ $name }}.{{ $namespace }}.svc.cluster.local
- {{ $name }}.{{ $namespace }}
{{- end }}

{{/*
"yes" if the chart is rendered for a cluster that `lookup` does not reach, otherwise empty. A cluster answers a list with an
object even if nothing is in it. Argo CD gives the cluster's API versions to `helm template`; a person at a terminal gives
none, and Helm's defaults lack the aggregation layer, which each cluster has.
*/}}
{{- define "tidegate.rendersBlindly" -}}
{{- if and (.Capabilities.APIVersions.Has "apiregistration.k8s.io/v1") (not (lookup "v1" "Secret" .Release.Namespace "")) }}yes{{ end }}
{{- end }}
