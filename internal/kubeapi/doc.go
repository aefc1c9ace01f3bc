// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeapi is a small client of an API server: requests by kind, and stores that lists and watches fill. It uses
// client-go's rest client and reflector, and no generated clientset, which links every API group. It does not decide
// what an agent asks for.
//
//	client, err := kubeapi.New(config, kubeapi.Options{})
//	node, err := kubeapi.In(client, kubeapi.Nodes, "").Get(ctx, "node-1")
//	pods := kubeapi.NewStore(kubeapi.In(client, kubeapi.Pods, ""), kubeapi.StoreOptions[*corev1.Pod]{FieldSelector: "spec.nodeName=node-1"})
//	err = pods.Run(ctx)
//
// # Requests
//
// Every request is in protobuf, has a deadline of 10 s unless its context has a sooner one, and shares one budget of 50 a
// second with the others of its client, in bursts of 100. When the API server answers "later" (429, or 5xx with
// Retry-After) the request waits and is sent again; if its deadline does not allow that, the caller gets the error at once
// and [RetryAfter] says how long. Nothing else is sent twice, except that client-go repeats a GET whose connection broke.
//
// # Connections
//
// A client has connections of its own. To connect takes 10 s at most, the name server included. When a request gets no
// answer in time, those connections that have been silent since it began are closed, so that the next request has a new
// one: a dead connection costs one try. [Client.HeartbeatClient] is a client on other connections, without a budget, which
// closes them after any request without an answer. Client certificates and tokens that are files are read when they
// are used.
//
// # Stores
//
// A [Store] lists in pages, then watches, for 10 to 20 minutes at a time. Every hour, or as often as it is told, it lists
// the API server's store again, so that an event that was lost, or a restored etcd, leaves nothing behind. A watch that
// does not begin within 30 s, or says nothing for 3 minutes, is given up and resumed. After an error it waits 1 s to 30 s,
// or as long as the API server asks. The objects stay as they were for as long as it is away.
//
// # Limits
//
// An object of 8 MiB, a page of a list of 64 MiB, an event of 16 MiB, 100,000 objects in a store; Retry-After of 5 minutes.
//
// # Errors
//
// An [*Error] names verb, resource and object, and wraps the API server's StatusError if there is one. Texts of answers that
// could not be decoded are cut, and those of secrets, config maps and tokens are never shown.
//
// # What client-go logs
//
// client-go writes to a process-wide log on stderr unless the context of a call has a logger: every call of this package
// has one, of Options.Logger. What it would write there without a context is avoided: the reflector gets lists that are
// there already (it reports those that take 10 s), files of certificates and tokens are read here, warnings of the API
// server are dropped.
//
// Test kit: package apiserver/apiservertest.
package kubeapi
