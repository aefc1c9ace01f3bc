// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package auth decides who may send which request to the API of a node. It serves nothing itself, keeps no users, and knows neither
// client-go nor k8s.io/apiserver.
//
// # Model
//
// An [Access] authenticates a request by client certificate, by bearer token, or as anonymous, and then asks the API server whether that
// user has the verb on the subresource of the Node that method and path stand for, such as get on nodes/metrics:
//
//	ca, err := auth.NewCAFile("/etc/kubernetes/pki/ca.crt", nil)
//	access, err := auth.New(auth.Options{
//		NodeName:  "node-1",
//		ClientCAs: ca.Pool,
//		Tokens:    clientset.AuthenticationV1().TokenReviews(),
//		Access:    clientset.AuthorizationV1().SubjectAccessReviews(),
//	})
//	handler = access.Handler(handler)
//
// What belongs here: identities, decisions, and how long they hold. What does not: listeners and TLS, which package nodeapi has, and
// which paths there are.
//
// # Concurrency
//
// Everything may be called from any goroutine. No goroutine is started: questions to the API server are asked by that of the request that
// needs the answer first, and others that need the same answer wait for it. A request whose context ends waits no longer.
//
// # Errors
//
// Who is not known gets 401, who may not gets 403, and 500 if the API server has no answer within Options.Timeout. A client whose
// address has more than its share of the requests that wait gets 429: see Options.MaxReviews. What is remembered holds for its time also while the API server is away. Errors are not remembered, and go to the log, not to the client.
//
// # Differs from the kubelet
//
// The model is cmd/kubelet/app/auth.go and pkg/kubelet/server/auth.go of Kubernetes 1.37 with what they use of k8s.io/apiserver. A user
// has to know:
//
//   - exec, attach, portForward and run by GET need the verb create; see Options.RunByGet.
//   - A question to the API server takes 10 s at most, with all of its retries.
//   - A certificate authority takes effect within a second, however its file is replaced.
//
// All others are in DIFFERENCES.md.
//
// # When not to use it
//
// Behind something that has authenticated and authorized already, such as a unix socket of root alone.
//
// Test kit: package authtest has reviewers in memory and client certificates.
package auth
