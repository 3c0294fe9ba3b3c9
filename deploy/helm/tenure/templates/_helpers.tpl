{{/* The name of everything that the release makes. Pods are NAME-0, NAME-1, …, which are also the nodes' ids. */}}
{{- define "tenure.name" -}}
{{- if contains "tenure" .Release.Name }}{{ .Release.Name | trunc 48 | trimSuffix "-" }}{{ else }}{{ printf "%s-tenure" .Release.Name | trunc 48 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tenure.selector" -}}
app.kubernetes.io/name: tenure
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tenure.labels" -}}
{{ include "tenure.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tenure.scheme" -}}
{{ if .Values.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{/* ID=HOST:PORT@URL of every node, as the variable TENURE_MEMBERS has them. */}}
{{- define "tenure.members" -}}
{{- $name := include "tenure.name" . -}}
{{- $scheme := include "tenure.scheme" . -}}
{{- $domain := printf "%s-peers.%s.svc" $name .Release.Namespace -}}
{{- range $i := until (int .Values.replicas) -}}
{{- if $i }},{{ end -}}
{{ $name }}-{{ $i }}={{ $name }}-{{ $i }}.{{ $domain }}:7701@{{ $scheme }}://{{ $name }}-{{ $i }}.{{ $domain }}:7601
{{- end -}}
{{- end }}

{{/* URL of every node's front, as clients have them. */}}
{{- define "tenure.endpoints" -}}
{{- $name := include "tenure.name" . -}}
{{- $scheme := include "tenure.scheme" . -}}
{{- $domain := printf "%s-peers.%s.svc" $name .Release.Namespace -}}
{{- range $i := until (int .Values.replicas) -}}
{{- if $i }},{{ end -}}
{{ $scheme }}://{{ $name }}-{{ $i }}.{{ $domain }}:7601
{{- end -}}
{{- end }}

{{/* Not those of the nodes: no Service may send a call to a backup's pod. */}}
{{- define "tenure.backupLabels" -}}
app.kubernetes.io/name: tenure-backup
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
