{{- define "namesrv.name" -}}
{{- if contains "namesrv" .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- else -}}{{ printf "%s-namesrv" .Release.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "namesrv.selector" -}}
app.kubernetes.io/name: namesrv
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "namesrv.labels" -}}
{{ include "namesrv.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* The reference of an image. Takes dict "image" .Values.image "chart" .Chart */ -}}
{{- define "namesrv.image" -}}
{{- if .image.digest -}}{{ .image.repository }}@{{ .image.digest }}{{- else -}}{{ .image.repository }}:{{ .image.tag | default .chart.AppVersion }}{{- end -}}
{{- end -}}

{{- define "namesrv.servers" -}}
{{- $servers := list -}}
{{- range $ordinal := until (int .Values.replicas) -}}
{{- $servers = append $servers (printf "%s-%d.%s.%s.svc:9876" (include "namesrv.name" $) $ordinal (include "namesrv.name" $) $.Release.Namespace) -}}
{{- end -}}
{{- join ";" $servers -}}
{{- end -}}

{{- define "namesrv.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "namesrv.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
