// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package auth authenticates and authorizes requests to the HTTP API of a node, as the kubelet does. It serves no paths itself, stores no
// users, and depends on neither client-go nor k8s.io/apiserver.
//
//	ca, err := auth.NewCAFile("/etc/kubernetes/pki/ca.crt", nil)
//	if err != nil {
//		return err
//	}
//	access, err := auth.New(auth.Options{
//		NodeName:       "node-1",
//		ClientCAs:      ca.Pool,
//		TokenReviewer:  clientset.AuthenticationV1().TokenReviews(),
//		AccessReviewer: clientset.AuthorizationV1().SubjectAccessReviews(),
//	})
//	if err != nil {
//		return err
//	}
//	handler = access.Handler(handler)
//
// An [Access] authenticates a request by client certificate, by bearer token, or as anonymous. It then asks the API server, by a
// SubjectAccessReview, whether the user has the verb on the subresource of the Node that belongs to method and path, such as get on
// nodes/metrics. Reviews are cached.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine. The package starts no goroutine: the request that needs a review first sends
// it, and concurrent requests that need an equal review wait for its result. A request stops waiting when its context ends.
//
// # Errors
//
// An unauthenticated request is answered with 401, an unauthorized one with 403, and one whose review fails or exceeds Options.Timeout with
// 500. A client above the limits of Options.MaxReviews gets 429. Cached reviews are valid until their TTL, also while the API server is
// unavailable. Errors are not cached; they are logged and not sent to the client.
//
// # Differs from the kubelet
//
// The model is cmd/kubelet/app/auth.go and pkg/kubelet/server/auth.go of Kubernetes 1.37. DIFFERENCES.md has all differences. Main ones:
//
//   - exec, attach, portForward and run with method GET need the verb create; see Options.RunByGet.
//   - A review takes at most 10 s, including its retries.
//   - A replaced CA file takes effect within a second.
//
// It is not needed behind another authentication, such as a unix socket that only root can open.
//
// Test kit: package authtest has in-memory reviewers and client certificates.
package auth
