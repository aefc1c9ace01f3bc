// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cert manages the credentials of a node. It loads kubeconfigs, and requests, stores and rotates the client and serving
// certificates. It signs and approves no certificate.
//
//	client, err := cert.NewClient(cert.ClientOptions{
//		NodeName: "n1", Kubeconfig: "/etc/kubernetes/kubelet.conf", BootstrapKubeconfig: "/etc/kubernetes/bootstrap-kubelet.conf",
//	})
//	...
//	go client.Run(ctx)
//	config := client.Config() // for heartbeat, apiserver, and every other client
//
//	serving, err := cert.NewServing(config, cert.ServingOptions{NodeName: "n1", Addresses: addresses})
//	...
//	go serving.Run(ctx)
//	server.TLSConfig = &tls.Config{GetCertificate: serving.GetCertificate}
//
// Run creates a key and a CertificateSigningRequest if there is no certificate, when 70 to 90 % of its lifetime have passed, or
// when the node's addresses have changed. It waits for the signer, stores the certificate and makes clients reconnect with it.
//
// The controller manager approves client certificates if the usual roles are bound. An administrator or another controller must
// approve serving certificates.
//
// The files are those of the kubelet, in /var/lib/kubelet/pki by default, so that agent and kubelet can replace each other.
// kubelet-client-DATE.pem has certificate and key; kubelet-client-current.pem is a link to it. A process may be killed at any
// moment.
//
// An agent without rotation calls [Load], or [Bootstrap] once and [LoadKubeconfig]. [CheckCredentials] examines the credentials of a
// kubeconfig. [ExplainError] names the field that caused the error of a request.
//
// # Concurrency
//
// All methods of Client and Serving may be called from any goroutine; Run is called once. Constructors start nothing. Hooks are
// called from Run's goroutine with no lock held. Only one process at a time may use the directory of the certificates.
//
// # Errors
//
// Constructors return errors that an administrator must fix, with the name of the file. Run returns nil when ctx ends. It retries
// after errors, which it logs, passes to Hooks.Failed and reports in [Status]. A [*RefusedError] reports a denied or failed
// request. No error contains a key or a token.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/certificate and client-go's util/certificate at 1.37.1. DIFFERENCES.md lists all differences; the most
// visible are:
//
//   - The process never exits when a certificate expires: it rereads both kubeconfigs until one works.
//   - At least one minute passes between two requests for the same names, so certificates must be valid for more than two minutes.
//   - After a rotation, requests in flight complete, and watches are closed after 15 s.
//   - The written kubeconfig keeps tls-server-name and proxy-url.
//   - Bootstrap continues until its context ends, even after a denial.
//
// Test kit: package certtest has a signer and an API server that authenticates clients by their certificates.
package cert
