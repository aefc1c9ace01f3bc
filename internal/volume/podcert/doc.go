// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podcert gets certificates for pods, for the podCertificate sources of projected volumes, and renews them in time. It
// makes the private keys; it signs nothing, and does not write what it has anywhere.
//
// # Model
//
// A [Keeper] has a certificate for each source of each pod that has asked for one. It makes a key, has a [volume.CertificateIssuer] certify it, and
// does so again with a new key when it is time to. An issuer for a cluster creates a PodCertificateRequest and returns when that
// was issued, denied or failed. The Keeper is where package intree has certificates from, and a watcher of package volume: it tells
// when one was issued, so that the volumes that show it are brought up to date at once.
//
//	keeper := podcert.New(issuer, podcert.Options{})
//	plugins := intree.Plugins(intree.Options{Certificates: keeper})
//	volumes, err := volume.New(volume.Options{Root: root, Plugins: plugins, Watcher: keeper})
//	...
//	go keeper.Run(ctx)
//
// A certificate is renewed up to five minutes, at random, after its issuer says that this may begin. Until there is another one the
// old one is returned, even if it has expired; events tell of one that is overdue by ten minutes, and of one that has expired. A
// request that was denied or has failed is never repeated, as in the kubelet: the pod keeps the files that it has, and gets no
// others. Any other failure is repeated after 1 s, doubling to 5 min.
//
// It belongs here when a pod gets which certificate. Which files it is written to is in package payload.
//
// # Concurrency
//
// All methods may be called from any goroutine, Run once. Hooks are called from goroutines of Run, with no lock held. A signer that
// does not answer delays the pods that ask for its certificates alone.
//
// # Errors
//
// A [*volume.CertificateRefusedError] is final. Errors have no keys in them.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/podcertificate at 1.37.1. What a user must act on, with the rest in DIFFERENCES.md:
//
//   - A volume waits for its certificate for 3 s before its set-up is repeated.
//   - A request that is neither issued nor refused within 15 min is given up, and another one made with another key.
//
// Test kit: package volumetest has a Signer.
package podcert
