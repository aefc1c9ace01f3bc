// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real control plane of Kubernetes 1.37.1 for tests: etcd, kube-apiserver and optionally
// kube-controller-manager and kube-scheduler. It installs and simulates nothing: `make cluster-tools` builds the programs into
// the .lab directory of the checkout.
//
//	plane := controlplane.Start(t, controlplane.Options{ControllerManager: true})
//	var pods map[string]any
//	err := plane.Admin().Do(ctx, http.MethodGet, "/api/v1/pods", nil, &pods)
//	node, err := plane.Client("system:node:n1", "system:nodes")
//	path, err := plane.Kubeconfig("system:node:n1", "system:nodes")
//
// [Start] runs the programs as processes that listen on loopback, within a few seconds. They end with the test, and are killed if
// its process dies. Authorization is Node and RBAC with the admission plugin NodeRestriction, as in kubeadm, so that the
// permissions of an agent are those in a cluster. [Plane.Kill] and [Plane.Restart] are for tests with an unavailable API server.
//
// [PrepareKubeadm] makes kubeadm write certificates and the manifests of the four static pods, for an agent that runs them. It
// returns a [Cluster], which gives access to that control plane. The manifests differ from kubeadm's in ports, host paths and
// image names: see [Images].
//
// [Serve] runs a control plane for people until its context ends, and [Open] finds it from another process. The command `lab
// controlplane up` uses both.
//
// [Client] sends and receives JSON, and watches. With Options.Audit, [Plane.Requests] returns the requests to the API server.
// [Plane.StartMetricsServer] adds a metrics-server, for the API metrics.k8s.io and `kubectl top`. [Plane.ServiceAccountToken]
// signs tokens that the API server would not issue, such as an expired one. A proxy between agent and API server, such as that of
// package faultproxy, gets certificates from [Access.ServerCertificate] and [Access.ClientCertificate], and the agent a
// kubeconfig from [Access.KubeconfigAt].
//
// If the programs are not built, the test is skipped with the reason. With NODEAGENT_CLUSTER=required in the environment, as
// `make cluster` sets it, the test fails instead.
//
// # Concurrency
//
// The methods of [Access], [Client] and [SharedPlane] may be called from any goroutine; those of a [Plane] must not be called
// concurrently. A Plane owns a goroutine for each process, which ends with it.
//
// # Errors
//
// An error response of the API server is a [*StatusError]. An error about a process quotes the end of its log.
package controlplane
