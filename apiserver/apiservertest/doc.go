// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiservertest has an API server in memory for tests of API clients: node agents, schedulers, controllers and autoscalers.
// It models the API, with resource versions, watches, patches, deletions and faults, but no cluster: no controller acts on the objects.
//
//	server := apiservertest.NewServer(apiservertest.Options{})
//	defer server.Close()
//	err := server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
//	clients, err := kubernetes.NewForConfig(server.Config()) // client-go, unmodified
//	...
//	remove := server.Fail("list", "pods", http.StatusInternalServerError)
//
// A [Server] holds objects of the groups core, apps, autoscaling/v2, batch, certificates, coordination, discovery, events, node,
// policy, resource, scheduling and storage, and custom resources of [Options].Kinds. A test writes them with [Server.Put], reads them
// with [Get] and [List], and gives [Server.Config] to the tested client. Requests reach the server without sockets, which works in
// the virtual time of testing/synctest. [Server.Listen] opens a real listener, for tests that depend on connections.
//
// Bodies are JSON or protobuf, or have the metadata only, as the client requests. Each write has a resource version. A watch
// resumes from any version in the history, and supports selectors, bookmarks and the initial events of a streaming list.
// Updates conflict by version. Patches may be strategic, merge or JSON patches. Discovery lists all resources. Deletions have
// grace periods, finalizers, preconditions and selectors. Pods have the subresources binding, eviction, ephemeralcontainers and
// resize, and workloads have scale. An eviction needs a disruption of the PodDisruptionBudget, whose status the test sets.
// Objects get the defaults that clients depend on. Events of events.k8s.io and core are the same objects.
//
// [Server.Inject] makes requests fail, wait, hang or lose their response. [Server.DisconnectAll], [Server.SetUnavailable],
// [Server.Compact] and [Server.DeleteSilently] affect the whole server. [Server.Requests] returns the last requests. The request
// log and the history are bounded by [Options], so that a server can run for days.
//
// It does not model authentication, authorization and other admission (except Options.Admit), defaults of pod templates, validation
// beyond names, versions and UIDs, quotas, the existence of namespaces, garbage collection by owner, propagation policies, allocated
// IPs, tables, OpenAPI, and signatures of tokens. Server-side apply fails with 415. A list of any version returns the newest one.
//
// # Concurrency
//
// All methods may be called from any goroutine. Objects are copied on the way in and out. NewServer starts nothing; each request
// has a goroutine that ends with it. A server must be used in the synctest bubble in which it was created. In a bubble, the second of
// utilruntime.ErrorHandlers sleeps for years: a test of a controller that reports errors there removes it first.
//
// # Errors
//
// Failed requests get the Status object of a real API server. Errors of methods name the object. NewServer panics if a kind in
// Options is invalid.
package apiservertest
