{{/* Names and labels of all objects of the release. */}}

{{- define "tidegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The objects of a release with the name tidegate are called tidegate. */}}
{{- define "tidegate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "tidegate.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "tidegate.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Names of cluster-scoped objects contain the release's namespace, because releases in several namespaces may have the same name. */}}
{{- define "tidegate.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "tidegate.fullname" .) }}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tidegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "tidegate.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "tidegate.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "tidegate.authentication" -}}
{{- default (include "tidegate.fullname" .) .Values.keda.clusterTriggerAuthentication.name }}
{{- end }}

{{- /* URL of Grafana without a slash at its end; empty if not configured. */}}
{{- define "tidegate.grafana" -}}
{{- dig "links" "grafana" "" (.Values.config | default dict) | default "" | trimSuffix "/" }}
{{- end }}

{{- /* A file of dashboards/build.py with links to `links.docs` and to Grafana. Arguments: root, file. */}}
{{- define "tidegate.linked" -}}
{{- $docs := default "https://github.com/tidegate/tidegate/blob/main/docs" .root.Values.links.docs }}
{{- .root.Files.Get .file | replace "https://github.com/tidegate/tidegate/blob/main/docs" $docs | replace "\"/d/" (printf "\"%s/d/" (include "tidegate.grafana" .root)) }}
{{- end }}
