{{/* A command of millweir before the release is installed or upgraded. Takes (root, name, args, values, given, plain, secret):
     settings that are plain or secret, by name, and what values say about them; and existingSecret where the
     secret ones are not the services'. */}}
{{- define "millweir.job" -}}
{{- $root := .root -}}
{{- $given := .given -}}
{{- $secret := .secret -}}
{{- $full := printf "%s-%s" (include "millweir.fullname" .root) .name -}}
{{- $labels := include "millweir.labels" (dict "root" .root "component" .name) -}}
{{- $own := get . "existingSecret" }}
{{- if and .root.Values.secret.create (not $own) }}
# Hooks run before the release's own Secret is there: this one lives as long as the Job and holds what the Job needs only.
apiVersion: v1
kind: Secret
metadata:
  name: {{ $full }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
  annotations:
    helm.sh/hook: pre-install,pre-upgrade
    helm.sh/hook-weight: "-5"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
type: Opaque
{{- $held := dict }}
{{- range $setting := $secret }}
{{- if hasKey $root.Values.secret.values $setting }}
{{- $_ := set $held $setting (get $root.Values.secret.values $setting) }}
{{- end }}
{{- end }}
stringData: {{- toYaml $held | nindent 2 }}
---
{{- end }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $full }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
  annotations:
    helm.sh/hook: pre-install,pre-upgrade
    helm.sh/hook-weight: "0"
    # A Job that failed stays, so that its log can be read.
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: {{ .values.backoffLimit }}
  activeDeadlineSeconds: {{ .values.activeDeadlineSeconds }}
  template:
    metadata:
      labels: {{- $labels | nindent 8 }}
    spec:
      # The namespace's default account: the release's own is not there yet. Neither gets a token.
      serviceAccountName: default
      {{- include "millweir.podSecurity" . | nindent 6 }}
      restartPolicy: Never
      containers:
        - name: {{ .name }}
          image: {{ include "millweir.image" (dict "root" .root "name" "millweir" "image" .root.Values.migrations.image) }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{- toYaml .args | nindent 12 }}
          securityContext: {{- toYaml .root.Values.securityContext | nindent 12 }}
          env:
            {{- range $setting := concat .plain $secret }}
            {{- if hasKey $given $setting }}
            - name: {{ $setting }}
              value: {{ include "millweir.text" (get $given $setting) | quote }}
            {{- else if has $setting $secret }}
            {{- include "millweir.secretVariable" (dict "name" $setting "secret" (default (ternary $full (include "millweir.secretName" $root) $root.Values.secret.create) $own)) | nindent 12 }}
            {{- end }}
            {{- end }}
            {{- with include "millweir.caVariable" .root }}{{ . | nindent 12 }}{{ end }}
            {{- with .root.Values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          {{- if .root.Values.caConfigMap }}
          volumeMounts: {{- include "millweir.caMount" .root | nindent 12 }}
      volumes: {{- include "millweir.caVolume" .root | nindent 8 }}
          {{- end }}
{{- end -}}
