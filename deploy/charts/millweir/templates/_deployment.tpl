{{/* The variables of a service: the chart's own, then values, then the Secret. Takes (root, name). */}}
{{- define "millweir.env" -}}
{{- $service := get .root.Values.services .name -}}
{{- $settings := include "millweir.settings" . | fromYaml -}}
{{- $given := include "millweir.given" . | fromYaml -}}
{{- $secret := include "millweir.secretName" .root -}}
{{- $own := dict "HTTP_ADDR" ":8081" "OPERATOR_ADDR" (printf ":%v" $service.operatorPort) "INGEST_QUEUE" (include "millweir.transport" .)
  "UPLOAD_DIR" "/uploads" "VECTOR_STORE" .root.Values.vectorStore -}}
{{- if .root.Values.workflowsSecret }}{{ $_ := set $own "WORKFLOWS_FILE" "/workflows/workflows.yaml" }}{{ end -}}
{{- range $name := $settings.plain }}
{{- if hasKey $own $name }}
- name: {{ $name }}
  value: {{ get $own $name | quote }}
{{- else if hasKey $given $name }}
- name: {{ $name }}
  value: {{ include "millweir.text" (get $given $name) | quote }}
{{- end }}
{{- end }}
{{- range $name := $settings.address }}
{{- if hasKey $given $name }}
- name: {{ $name }}
  value: {{ get $given $name | quote }}
{{- else }}
{{ include "millweir.secretVariable" (dict "name" $name "secret" $secret) }}
{{- end }}
{{- end }}
{{- range $name := $settings.secret }}
{{ include "millweir.secretVariable" (dict "name" $name "secret" $secret) }}
{{- end }}
{{- range $name := keys $given | sortAlpha }}
{{- if and (hasPrefix "OTEL_" $name) (ne $name "OTEL_UI_URL") }}{{/* a setting of ours, above */}}
- name: {{ $name }}
  value: {{ include "millweir.text" (get $given $name) | quote }}
{{- end }}
{{- end }}
{{- with include "millweir.caVariable" .root }}
{{ . }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The Deployment of a service. What it mounts and serves follows from its settings. Takes (root, name). */}}
{{- define "millweir.deployment" -}}
{{- $root := .root -}}
{{- $service := get .root.Values.services .name -}}
{{- $plain := (include "millweir.settings" . | fromYaml).plain -}}
{{- $named := dict "root" .root "component" .name -}}
{{- $preStop := get $service "preStopSeconds" | default 0 | int -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "millweir.fullname" .root }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "millweir.labels" $named | nindent 4 }}
spec:
  {{- if regexMatch "^[0-9]+$" (get $service "replicas" | toString) }}
  replicas: {{ $service.replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "millweir.selector" $named | nindent 6 }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata:
      labels:
        {{- include "millweir.labels" $named | nindent 8 }}
        {{- with (get $service "podLabels") }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or .root.Values.metrics.annotations .root.Values.secret.create (get $service "podAnnotations") }}
      annotations:
        {{- if .root.Values.metrics.annotations }}
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ $service.operatorPort | quote }}
        prometheus.io/path: /metrics
        {{- end }}
        {{- if .root.Values.secret.create }}
        checksum/secret: {{ .root.Values.secret.values | toJson | sha256sum }}
        {{- end }}
        {{- with (get $service "podAnnotations") }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "millweir.serviceAccount" .root }}
      {{- include "millweir.podSecurity" . | nindent 6 }}
      # The work's own grace, then hand-back, the last traces and figures; a SIGKILL costs only leases, never a task.
      terminationGracePeriodSeconds: {{ add $preStop (include "millweir.stopSeconds" . | int) 20 }}
      containers:
        - name: {{ .name }}
          image: {{ include "millweir.image" (dict "root" .root "name" .name "image" (get $service "image")) }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          securityContext: {{- toYaml .root.Values.securityContext | nindent 12 }}
          {{- if eq .name "rehydrator" }}
          args: [--mode, auto]
          {{- end }}
          env: {{- include "millweir.env" . | trim | nindent 12 }}
          ports:
            {{- if has "HTTP_ADDR" $plain }}
            - {name: http, containerPort: 8081}
            {{- end }}
            - {name: operator, containerPort: {{ $service.operatorPort }}}
          # Liveness counts from here on: a start on a busy node may take two minutes.
          startupProbe:
            httpGet: {path: /healthz, port: operator}
            periodSeconds: 2
            timeoutSeconds: 3
            failureThreshold: 60
          # Alive as long as it answers: a dependency that is away makes a pod unready and never restarts it.
          livenessProbe:
            httpGet: {path: /healthz, port: operator}
            periodSeconds: 10
            timeoutSeconds: 3
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: operator}
            periodSeconds: 5
            timeoutSeconds: 3
            failureThreshold: 2
          {{- if $preStop }}
          lifecycle:
            preStop:
              sleep: {seconds: {{ $preStop }}}
          {{- end }}
          resources: {{- get $service "resources" | toYaml | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- with include "millweir.caMount" .root }}{{ . | nindent 12 }}{{ end }}
            {{- if has "UPLOAD_DIR" $plain }}
            - {name: uploads, mountPath: /uploads}
            {{- end }}
            {{- if and .root.Values.workflowsSecret (has "WORKFLOWS_FILE" $plain) }}
            - {name: workflows, mountPath: /workflows, readOnly: true}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: {{ $service.tmpSize }}}
        {{- with include "millweir.caVolume" .root }}{{ . | nindent 8 }}{{ end }}
        {{- if has "UPLOAD_DIR" $plain }}
        - name: uploads
          persistentVolumeClaim:
            claimName: {{ .root.Values.uploads.existingClaim | default (printf "%s-uploads" (include "millweir.fullname" .root)) }}
        {{- end }}
        {{- if and .root.Values.workflowsSecret (has "WORKFLOWS_FILE" $plain) }}
        - name: workflows
          secret: {secretName: {{ .root.Values.workflowsSecret }}}
        {{- end }}
      {{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
      {{- with get $service $key }}
      {{ $key }}: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
{{- end -}}
