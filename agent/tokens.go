// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/cert"
)

// identify returns how to talk to the API server, and who the agent is there. A certificate that is rotated, or that there is none
// of yet, is looked after by a part of the agent. It does not connect.
func (a *Agent) identify() (*rest.Config, error) {
	if !a.config.Kubelet.RotateCertificates {
		config, err := cert.LoadKubeconfig(a.config.Node.Kubeconfig)
		if err == nil {
			if wrong := cert.CheckCredentials(config, a.config.Node.NodeName, time.Now()); wrong != nil { // the pods of this node run without it, too
				a.log.Error("kubeconfig", "file", a.config.Node.Kubeconfig, "error", wrong)
			}
		}
		return config, err
	}
	o := cert.ClientOptions{
		NodeName: a.config.Node.NodeName, Kubeconfig: a.config.Node.Kubeconfig, BootstrapKubeconfig: a.config.Node.BootstrapKubeconfig, Dir: a.config.path("pki"), Logger: a.log,
	}
	o.Hooks.Rotated, o.Hooks.Failed = a.meter.ClientCertificate()
	client, err := cert.NewClient(o)
	if err != nil {
		return nil, err
	}
	a.add("client certificate", client.Run)
	return client.Config(), nil
}

// openTokens returns what has the API server issue tokens of service accounts, each bound to the pod that it is for.
func (a *Agent) openTokens() (apiserver.Tokens, error) {
	var none apiserver.Tokens
	config, err := a.identify()
	if err != nil {
		return none, err
	}
	source, err := apiserver.New(config, apiserver.Options{NodeName: a.config.Node.NodeName})
	if err != nil {
		return none, fmt.Errorf("kubeconfig %s: %w", a.config.Node.Kubeconfig, err)
	}
	return source.Tokens(), nil
}
