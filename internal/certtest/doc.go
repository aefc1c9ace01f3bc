// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certtest is a small cluster for tests of certificates: an API server in memory that knows users by their certificates
// and a bootstrap token, and a signer. It is made for package cert, and runs in the virtual time of testing/synctest.
//
// # Model
//
// A [Cluster] is an [apiservertest.Server] behind TLS, on connections in memory: [Cluster.Dial] makes them. Who makes a request is
// who its certificate, signed by the cluster's authority and valid at the time, is for, or the bearer of the token; anybody else gets 401.
// What a CertificateSigningRequest gets is decided as soon as it is there, by Options.Decide, or later, in [Cluster.DecidePending].
//
//	cluster, err := certtest.Start(certtest.Options{TTL: 3 * time.Minute})
//	defer cluster.Close()
//	err = os.WriteFile(path, cluster.Bootstrap(), 0o600)
//	client, err := cert.NewClient(cert.ClientOptions{NodeName: "n1", BootstrapKubeconfig: path, Kubeconfig: other, Dial: cluster.Dial})
//
// What it does not model: authorization, so that everybody who is known may do anything; the checks of the signers of
// Kubernetes on names, usages and addresses; expirationSeconds; the end of requests that nobody approves; groups; and what
// apiservertest does not.
//
// # Concurrency
//
// All methods may be called from any goroutine. A Cluster owns goroutines, which end with [Cluster.Close].
//
// Test kit: this is one.
package certtest
