// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiservertest has an API server in memory, for tests of what talks to one: objects with versions, watches, patches,
// deletions and faults. It is a model of the API, not of a cluster: no controller acts on the objects.
//
// # Model
//
// A [Server] keeps objects of v1, coordination, certificates, node and storage. A test puts them there with [Server.Put], reads
// them with [Get] and [List], and hands [Server.Config] to what it tests: requests go through a transport without sockets, which
// works in the virtual time of testing/synctest. [Server.Listen] gives a real listener, for what depends on connections.
//
//	server := apiservertest.NewServer(apiservertest.Options{})
//	defer server.Close()
//	err := server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
//	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
//
// Bodies are JSON or protobuf, as the client asks. Each write has a version; a watch goes on from any that is not forgotten, is
// told of what enters and leaves its selection, and gets bookmarks and the initial events of a streaming list. Updates conflict by
// version; patches are strategic, merge and JSON patches, of the main resource, its status, and resize of pods; a POST of a binding gives a pod its node. Pods, secrets, services and volumes get the
// defaults of a real server, for the fields that a node reads, also with [Server.Put]. A pod that is
// deleted has a deletion timestamp for as long as its grace is not zero, and finalizers keep an object.
//
// [Server.Inject] has requests fail, wait, hang or lose their answer, by verb and resource; [Server.DisconnectAll], [Server.SetUnavailable],
// [Server.Compact] and [Server.DeleteSilently] are for all of the server. [Server.Requests] is what was asked.
//
// What it does not model: authentication and authorization, of which Options.Admit is all; other defaults, and validation of objects
// beyond their names, versions and UIDs; quotas, namespaces that must exist, controllers, garbage collection by owner, server-side
// apply, tables, and of collections the deletion; signatures of tokens. A list of any
// version is the newest.
//
// # Concurrency
//
// All methods may be called at any time from any goroutine. Objects that come and go are copies. NewServer starts nothing;
// a request has a goroutine, which ends with it. A server is used in the bubble that it was made in.
//
// # Errors
//
// Requests are answered with the Status that a real server sends. Methods return errors that name the object.
//
// Test kit: this is one.
package apiservertest
