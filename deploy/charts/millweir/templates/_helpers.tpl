{{/* The release's name, at most 40 characters: service names and hook suffixes come behind it. */}}
{{- define "millweir.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change: a Deployment's selector is immutable. Takes (root, component). */}}
{{- define "millweir.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* All labels of an object. Takes (root, component). */}}
{{- define "millweir.labels" -}}
{{ include "millweir.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: millweir
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* An image: the whole reference if one is given. Takes (root, name, image). */}}
{{- define "millweir.image" -}}
{{- .image | default (printf "%s/%s:%s" .root.Values.image.repository .name (.root.Values.image.tag | default .root.Chart.AppVersion)) -}}
{{- end -}}

{{/* The Secret with the settings that are secret. Every service needs its database: without one nothing can start. */}}
{{- define "millweir.secretName" -}}
{{- if .Values.existingSecret -}}
{{- .Values.existingSecret -}}
{{- else if .Values.secret.create -}}
{{- include "millweir.fullname" . -}}
{{- else -}}
{{- fail "existingSecret names the Secret with MYSQL_DSN or DATABASE_URL, REDIS_URL and so on (or set secret.create and secret.values)" -}}
{{- end -}}
{{- end -}}

{{/* "true" when a service runs; auto: as the queue needs it. Takes (root, name). */}}
{{- define "millweir.enabled" -}}
{{- $enabled := (get .root.Values.services .name).enabled | toString -}}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (eq (include "millweir.transport" .) .root.Values.queue)) -}}true{{- end -}}
{{- end -}}

{{/* The transport of a service: a worker has its own and refuses the other's, whatever queue new tasks take. Takes (root, name). */}}
{{- define "millweir.transport" -}}
{{- get (dict "stream-worker" "redis" "outbox-relay" "kafka" "kafka-consumer" "kafka") .name | default .root.Values.queue -}}
{{- end -}}

{{/* Where authorities of one's own are: Go reads this folder and the public ones of the image. Takes root. */}}
{{- define "millweir.caVariable" -}}
{{- if .Values.caConfigMap -}}
- {name: SSL_CERT_DIR, value: /ca}
{{- end -}}
{{- end -}}
{{- define "millweir.caMount" -}}
{{- if .Values.caConfigMap -}}
- {name: ca, mountPath: /ca, readOnly: true}
{{- end -}}
{{- end -}}
{{- define "millweir.caVolume" -}}
{{- with .Values.caConfigMap -}}
- name: ca
  configMap: {name: {{ . }}}
{{- end -}}
{{- end -}}

{{/* A value as a variable's text: large numbers come out of YAML as floats and must not be written 1e+08. */}}
{{- define "millweir.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{- printf "%.0f" . -}}{{- else -}}{{- toString . -}}{{- end -}}
{{- end -}}

{{/* The names of a service's settings by kind, as YAML: plain, address (may hold a login), secret. Takes (root, name). */}}
{{- define "millweir.settings" -}}
{{- get (.root.Files.Get "files/settings.yaml" | fromYaml) .name | default dict | toYaml -}}
{{- end -}}

{{/* What values say about a service's settings: the shared ones, then its own. YAML. Takes (root, name). */}}
{{- define "millweir.given" -}}
{{- mergeOverwrite (deepCopy .root.Values.env) (get (get .root.Values.services .name) "env" | default dict) | toYaml -}}
{{- end -}}

{{/* One variable out of the Secret; a key that is not there is a setting that is not set. Takes (root, name, secret). */}}
{{- define "millweir.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .name }}
      optional: true
{{- end -}}

{{/* How long a service's work may still go on at a stop, in whole seconds, by the setting that it has. Takes (root, name). */}}
{{- define "millweir.stopSeconds" -}}
{{- $known := (include "millweir.settings" . | fromYaml).plain -}}
{{- $given := include "millweir.given" . | fromYaml -}}
{{- if has "INGEST_STOP_GRACE_MS" $known -}}
{{- divf (dig "INGEST_STOP_GRACE_MS" 10000 $given) 1000 | ceil | int -}}
{{- else if has "SHUTDOWN_GRACE" $known -}}
{{- dig "SHUTDOWN_GRACE" "20s" $given | trimSuffix "s" -}}
{{- else -}}
10
{{- end -}}
{{- end -}}

{{/* The parts of a pod that every pod has. Takes (root). */}}
{{- define "millweir.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- end -}}
