// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real control plane for tests: etcd and kube-apiserver and, where they are asked for,
// kube-controller-manager and kube-scheduler, all of Kubernetes 1.37.1. It installs nothing: the programs are those that
// `make cluster-tools` puts into the .lab directory of the checkout. It simulates nothing either.
//
// # Model
//
// [Start] runs the programs as processes of the host that listen on loopback, in a few seconds. They end with the test, and
// with its process, however that ends:
//
//	plane := controlplane.Start(t, controlplane.Options{ControllerManager: true})
//	var pods map[string]any
//	err := plane.Admin().Do(ctx, http.MethodGet, "/api/v1/pods", nil, &pods)
//	node, err := plane.Client("system:node:n1", "system:nodes")
//	path, err := plane.Kubeconfig("system:node:n1", "system:nodes")
//
// Authorization is Node and RBAC with the admission plugin NodeRestriction, as kubeadm has it, so that an agent that may do
// something here may do it in a cluster. [Plane.Kill] and [Plane.Restart] are for tests of an API server that goes away.
//
// [PrepareKubeadm] has the real kubeadm write certificates and the manifests of the four static pods, for an agent that runs
// them. The [Cluster] that it returns gives the same access. Of the manifests it changes nothing but the ports, which are
// free ones, and the paths on the host, which are below a directory of the test; the images have names of their own, see
// [Images].
//
// [Serve] is for people: it runs a control plane until it is told to end, and [Open] finds it from another process. The command
// hack/lab has both as `lab controlplane up` and its siblings.
//
// [Client] is a small client that sends and reads JSON, and watches. With Options.Audit [Plane.Requests] tells who has asked the API
// server for what.
// [Plane.StartMetricsServer] adds a metrics-server, for the API metrics.k8s.io and `kubectl top`.
// server for what. [Plane.ServiceAccountToken] signs tokens that the API server would not issue, such as one that has expired.
// A proxy between an agent and the API server, such as that of package faultproxy, has its certificates from [Access.ServerCertificate] and
// [Access.ClientCertificate], and the agent its kubeconfig from [Access.KubeconfigAt].
//
// [Client] is a small client that sends and reads JSON. It does not watch.
//
// Where the programs are not built the test is skipped with the reason. With NODEAGENT_CLUSTER=required in the environment,
// as `make cluster` sets it, it fails instead.
//
// # Concurrency
//
// The methods of [Access] and [Client] can be called from any goroutine, those of a [Plane] from one at a time. A Plane owns a
// goroutine for each process, which ends with it. Those of a [SharedPlane] can be called from any goroutine.
//
// # Errors
//
// What the API server refuses is a [*StatusError]. An error about a process has the end of its log.
package controlplane
