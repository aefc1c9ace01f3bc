// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/certtest"
)

// A node with only a bootstrap token requests its client certificate, and with that its serving certificate.
func ExampleNewClient() {
	cluster, err := certtest.Start(certtest.Options{}) // in memory; a real API server needs a kubeconfig only
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	dir, err := os.MkdirTemp("", "cert")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	bootstrap := filepath.Join(dir, "bootstrap-kubelet.conf")
	if err := os.WriteFile(bootstrap, cluster.BootstrapKubeconfig(), 0o600); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	issued := make(chan *x509.Certificate, 1)
	hooks := cert.Hooks{Rotated: func(_, current *x509.Certificate) { issued <- current }}
	client, err := cert.NewClient(cert.ClientOptions{
		NodeName: "n1", Kubeconfig: filepath.Join(dir, "kubelet.conf"), BootstrapKubeconfig: bootstrap,
		Dir: filepath.Join(dir, "pki"), Dial: cluster.Dial, Hooks: hooks,
	})
	if err != nil {
		panic(err)
	}
	go client.Run(ctx)
	<-issued
	fmt.Println(client.Current().Leaf.Subject, client.Status().Err)

	serving, err := cert.NewServing(client.Config(), cert.ServingOptions{
		NodeName: "n1", Dir: filepath.Join(dir, "pki"), Hooks: hooks, Addresses: func() []corev1.NodeAddress {
			return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "n1"}}
		},
	})
	if err != nil {
		panic(err)
	}
	go serving.Run(ctx) // serving.GetCertificate is for a tls.Config
	leaf := <-issued
	fmt.Println(leaf.IPAddresses, leaf.DNSNames)
	// Output:
	// CN=system:node:n1,O=system:nodes <nil>
	// [10.0.0.1] [n1]
}

// An agent without rotation requests its certificate once, and then uses the kubeconfig that names it.
func ExampleBootstrap() {
	cluster, err := certtest.Start(certtest.Options{}) // in memory; a real API server needs a kubeconfig only
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	dir, err := os.MkdirTemp("", "cert")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	kubeconfig, bootstrap := filepath.Join(dir, "kubelet.conf"), filepath.Join(dir, "bootstrap-kubelet.conf")
	if err := os.WriteFile(bootstrap, cluster.BootstrapKubeconfig(), 0o600); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	err = cert.Bootstrap(ctx, cert.ClientOptions{
		NodeName: "n1", Kubeconfig: kubeconfig, BootstrapKubeconfig: bootstrap, Dir: filepath.Join(dir, "pki"), Dial: cluster.Dial,
		Hooks: cert.Hooks{Failed: func(err error) {
			if refused, ok := errors.AsType[*cert.RefusedError](err); ok && refused.Denied {
				fmt.Println("an administrator has denied the node:", refused.Message)
			}
		}},
	})
	if err != nil {
		panic(err)
	}
	config, err := cert.LoadKubeconfig(kubeconfig)
	fmt.Println(filepath.Base(config.CertFile), err)
	// Output: kubelet-client-current.pem <nil>
}

// An error names the file, and the invalid field in it.
func ExampleLoadKubeconfig() {
	config, err := cert.LoadKubeconfig("/etc/kubernetes/none.conf")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := cert.CheckCredentials(config, "n1", time.Now()); err != nil {
		fmt.Println(err) // for example, the certificate has expired or is that of another node
	}
	// Output: kubeconfig /etc/kubernetes/none.conf: no such file or directory
}
