// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeapi is a small API client: typed requests, and stores that are filled by lists and watches. It uses client-go's
// REST client and reflector without the generated clientset, which links every API group. It does not decide which objects an
// agent requests.
//
//	client, err := kubeapi.New(config, kubeapi.Options{})
//	node, err := kubeapi.In(client, kubeapi.Nodes, "").Get(ctx, "node-1")
//	pods := kubeapi.NewStore(kubeapi.In(client, kubeapi.Pods, ""), kubeapi.StoreOptions[*corev1.Pod]{
//		FieldSelector: "spec.nodeName=node-1",
//		Changed:       func(keys ...string) { ... },
//	})
//	err = pods.Run(ctx)
//
// # Requests
//
// Requests are encoded as protobuf, have a deadline of 10 s, and share a rate limit of 50 per second with bursts of 100. After a
// response with 429, or 5xx and Retry-After, the request waits and is sent again. If its deadline is sooner, the caller gets the
// error at once; see [RetryAfter]. No other request is repeated, except that client-go repeats a GET whose connection broke.
//
// # Connections
//
// Each client has its own connections, which open within 10 s including the name lookup. When a request times out, the
// connections that were silent since it started are closed: a dead connection fails only one request. [Client.HeartbeatClient]
// returns a client with separate connections and no rate limit. Certificate and token files are read when they are used.
//
// # Stores
//
// A [Store] lists in pages, then watches for 10 to 20 minutes at a time. Every hour it lists again from the API server's etcd, to
// correct for lost events or a restored etcd. A watch that does not start within 30 s, or is silent for 3 minutes, is closed and
// resumed. After an error it waits 1 s to 30 s, or as long as the API server requests. While the API server is unavailable, the
// objects stay unchanged.
//
// # Limits
//
// An object may have 8 MiB, a page of a list 16 MiB, a watch event 16 MiB, a store 100,000 objects, and Retry-After 5 minutes.
//
// # Errors
//
// An [*Error] names verb, resource and object, and wraps the StatusError of the API server. Undecodable responses are quoted in
// part; those of secrets, config maps and tokens never.
//
// # Logging
//
// client-go logs to a process-wide logger on stderr unless the context of a call has a logger. Every call of this package has
// one, of Options.Logger. Warnings of the API server are dropped.
//
// Test kit: package apiserver/apiservertest.
package kubeapi
