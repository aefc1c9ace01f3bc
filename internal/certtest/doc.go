// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certtest is a small cluster for tests of certificates: an API server in memory that authenticates clients by
// certificate or bootstrap token, and a signer. It runs in the virtual time of testing/synctest.
//
//	cluster, err := certtest.Start(certtest.Options{TTL: 3 * time.Minute})
//	defer cluster.Close()
//	err = os.WriteFile(path, cluster.BootstrapKubeconfig(), 0o600)
//	client, err := cert.NewClient(cert.ClientOptions{NodeName: "n1", BootstrapKubeconfig: path, Kubeconfig: other, Dial: cluster.Dial})
//
// A [Cluster] is an [apiservertest.Server] behind TLS, on connections in memory that [Cluster.Dial] opens. The user of a request
// is that of its client certificate, if the cluster's authority has signed it and it is valid, or that of the bootstrap token.
// Other requests get 401. Options.Decide decides each CertificateSigningRequest when it is created; [Cluster.DecidePending]
// decides postponed ones.
//
// It does not model authorization, the signers' checks of names, usages and addresses, expirationSeconds, the expiry of
// unapproved requests, groups, or anything that apiservertest lacks.
//
// # Concurrency
//
// All methods may be called from any goroutine. A Cluster owns goroutines, which end with [Cluster.Close].
package certtest
