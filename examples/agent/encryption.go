// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodestatus/cert"
)

// certify makes what gets the certificate of the agent's own API, for the addresses that the node has at the time. Somebody has to
// approve its requests.
func (a *agent) certify(config *rest.Config, addresses func() []corev1.NodeAddress) (err error) {
	if !a.ServerTLSBootstrap {
		return nil
	}
	o := cert.ServingOptions{NodeName: a.NodeName, Addresses: addresses, Dir: a.state("pki"), Logger: a.log}
	o.Hooks.Rotated, o.Hooks.Failed = a.meter.ServingCertificate(func() *x509.Certificate {
		if pair := a.serving.Current(); pair != nil {
			return pair.Leaf
		}
		return nil
	})
	a.serving, err = cert.NewServing(config, o)
	if err != nil {
		return err
	}
	a.parts = append(a.parts, a.serving.Run)
	return nil
}

// encryption returns how the agent's own API is encrypted: with the certificate of the files, or of the cluster, or one that nobody has
// signed.
func (a *agent) encryption() (*tls.Config, error) {
	o := nodeapi.TLSOptions{}
	if a.clientCAs != nil {
		o.ClientCAs = a.clientCAs.Pool
	}
	certFile, keyFile := a.TLSCertFile, a.TLSPrivateKeyFile
	var err error
	switch {
	case a.serving != nil:
		o.GetCertificate = a.serving.GetCertificate
		return nodeapi.TLSConfig(o)
	case certFile == "":
		if certFile, keyFile, err = cert.SelfSigned(a.state("pki"), a.NodeName, a.hostIPs()); err != nil {
			return nil, err
		}
	}
	files, err := nodeapi.NewServingFiles(certFile, keyFile, func(err error) { a.log.Error("tlsCertFile", "error", err) })
	if err != nil {
		return nil, fmt.Errorf("tlsCertFile: %w", err)
	}
	o.GetCertificate = files.GetCertificate
	return nodeapi.TLSConfig(o)
}
