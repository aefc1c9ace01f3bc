// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/nodeapi"
)

// requestServingCertificate makes the part that requests the certificate of the node's API from the cluster, for the addresses that the node
// has at the time. The requests have to be approved.
func (a *Agent) requestServingCertificate(config *rest.Config, addresses func() []corev1.NodeAddress) (err error) {
	if !a.config.Kubelet.ServerTLSBootstrap {
		return nil
	}
	o := cert.ServingOptions{NodeName: a.config.Node.NodeName, Addresses: addresses, Dir: a.config.path("pki"), Logger: a.log}
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
	a.add("serving certificate", a.serving.Run)
	return nil
}

// encryption returns the TLS configuration of the node's API: its certificate is that of the cluster, of the files, or self-signed.
func (a *Agent) encryption() (*tls.Config, error) {
	o := nodeapi.TLSOptions{}
	if a.clientCAs != nil {
		o.ClientCAs = a.clientCAs.Pool
	}
	certFile, keyFile := a.config.Kubelet.TLSCertFile, a.config.Kubelet.TLSPrivateKeyFile
	var err error
	switch {
	case a.serving != nil:
		o.GetCertificate = a.serving.GetCertificate
		return nodeapi.TLSConfig(o)
	case certFile == "":
		if certFile, keyFile, err = cert.SelfSigned(a.config.path("pki"), a.config.Node.NodeName, a.hostIPs()); err != nil {
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
