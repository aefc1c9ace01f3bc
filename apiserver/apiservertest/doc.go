// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiservertest has an API server in memory for tests of API clients. It models the API, with resource versions, watches,
// patches, deletions and faults, but no cluster: no controller acts on the objects.
//
//	server := apiservertest.NewServer(apiservertest.Options{})
//	defer server.Close()
//	err := server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
//	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
//	...
//	remove := server.Fail("list", "pods", http.StatusInternalServerError)
//
// A [Server] holds objects of the groups core, coordination, certificates, node and storage. A test writes them with
// [Server.Put], reads them with [Get] and [List], and gives [Server.Config] to the tested client. Requests reach the server
// without sockets, which works in the virtual time of testing/synctest. [Server.Listen] opens a real listener, for tests that
// depend on connections.
//
// Bodies are JSON or protobuf, as the client requests. Each write has a resource version. A watch resumes from any version in the
// history, and supports selectors, bookmarks and the initial events of a streaming list. Updates conflict by version. Patches may
// be strategic, merge or JSON patches of an object, its status or the resize subresource of pods. A POST of a binding binds a
// pod.
//
// Objects get the defaults of the fields that a node reads. A deleted pod is terminating until its grace period is zero;
// finalizers keep an object.
//
// [Server.Inject] makes requests fail, wait, hang or lose their response. [Server.DisconnectAll], [Server.SetUnavailable],
// [Server.Compact] and [Server.DeleteSilently] affect the whole server. [Server.Requests] returns the received requests.
//
// It does not model authentication, authorization (except Options.Admit), other defaults, validation beyond names, versions and
// UIDs, quotas, the existence of namespaces, controllers, garbage collection by owner, server-side apply, tables, deletion of
// collections, and signatures of tokens. A list of any version returns the newest one.
//
// # Concurrency
//
// All methods may be called from any goroutine. Objects are copied on the way in and out. NewServer starts nothing; each request
// has a goroutine that ends with it. A server must be used in the synctest bubble in which it was created.
//
// # Errors
//
// Failed requests get the Status object of a real API server. Errors of methods name the object.
package apiservertest
