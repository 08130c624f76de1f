// Package chart checks what deploys Millweir: the Helm chart, the image, compose and skaffold.
// It renders the chart as helm does, decodes what comes out strictly and judges it with the API server's own validation and
// the restricted Pod Security Standard, and compares every name of a variable with what the services themselves say they read.
// It cannot show what needs a kubelet: probes at work, volumes, the sandbox under a node's seccomp profile.
//
// It is a module beside the workspace: Kubernetes and Helm must not choose the versions of our libraries.
package chart
