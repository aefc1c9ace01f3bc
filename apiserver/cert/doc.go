// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cert has the credentials of a node: it loads kubeconfigs, requests the client certificate and the serving certificate of the node,
// stores them, and replaces them before they expire. It signs and approves no certificate.
//
// # Model
//
// A [Client] begins with a kubeconfig that has a valid client certificate or, where there is none, with a bootstrap kubeconfig,
// of which it makes the other. A [Serving] has the certificate for the addresses that the node has at the time. Run makes a key
// and a CertificateSigningRequest when there is no certificate, when 70 to 90 % of its time are over, and when it is not for what
// it should be; then it waits for the signer, stores the certificate and has new connections made with it:
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
// Client certificates are approved by the controller manager where the usual roles are bound. Serving certificates are approved
// by a person, or a controller that somebody has added.
//
// The files are those of the kubelet, in /var/lib/kubelet/pki by default, so that either can take over the directory of the other:
// kubelet-client-DATE.pem with certificate and key, and the link kubelet-client-current.pem. A process may be killed at
// any moment. An agent without rotation calls [Bootstrap] once, and [LoadKubeconfig].
//
// [LoadKubeconfig] reads a kubeconfig, [CheckCredentials] examines the credentials in it, and [ExplainError] adds the field that has to be
// changed to the error of a request.
//
// # Concurrency
//
// All methods of Client and Serving may be called from any goroutine, Run once. Nothing is started before it. Hooks are called from
// its goroutine, with no lock held. One process at a time uses the directory of the certificates.
//
// # Errors
//
// New functions return what a person has to mend, with the name of the file. Run returns nil when ctx ends, and
// nothing else: what fails is logged, told to Hooks.Failed, part of [Status], and tried again. A [*RefusedError] is about a
// request that was denied or has failed. No error has a key or a token in it.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/certificate and client-go's util/certificate at 1.37.1. What a user must act on, with the rest
// in DIFFERENCES.md:
//
//   - The process never ends itself. When a certificate has expired, the bootstrap kubeconfig and the kubeconfig are read again until
//     there is one that works.
//   - Between two requests for the same, the first of which was issued or denied, is at least a minute: certificates must be valid
//     for longer than two.
//   - Requests that are under way when a certificate is replaced are not cut, watches are after 15 s.
//   - The kubeconfig that is written keeps tls-server-name and proxy-url of the bootstrap kubeconfig.
//   - Bootstrap does not fail while the API server is away or denies: it goes on until its context ends.
//
// Test kit: package certtest has a signer and an API server that knows users by their certificates.
package cert
