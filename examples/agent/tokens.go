// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/lifecycle/apisource"
	"github.com/seed81659283/nodeagent/nodestatus/cert"
	"github.com/seed81659283/nodeagent/nodestatus/kubeconfig"
)

// identify returns how to talk to the API server, and who the agent is there. A certificate that is rotated, or that there is none
// of yet, is looked after by a part of the agent. It does not connect.
func (a *agent) identify() (*rest.Config, error) {
	if !a.RotateCertificates {
		config, err := cert.LoadKubeconfig(a.Kubeconfig)
		if err == nil {
			if wrong := kubeconfig.Check(config, a.NodeName, time.Now()); wrong != nil { // the pods of this node run without it, too
				a.log.Error("kubeconfig", "file", a.Kubeconfig, "error", wrong)
			}
		}
		return config, err
	}
	o := cert.ClientOptions{
		NodeName: a.NodeName, Kubeconfig: a.Kubeconfig, BootstrapKubeconfig: a.BootstrapKubeconfig, Dir: a.state("pki"), Logger: a.log,
	}
	o.Hooks.Rotated, o.Hooks.Failed = a.meter.ClientCertificate()
	client, err := cert.NewClient(o)
	if err != nil {
		return nil, err
	}
	a.parts = append(a.parts, client.Run)
	return client.Config(), nil
}

// openTokens returns what has the API server issue tokens of service accounts, each bound to the pod that it is for.
func (a *agent) openTokens() (apisource.Tokens, error) {
	var none apisource.Tokens
	config, err := a.identify()
	if err != nil {
		return none, err
	}
	source, err := apisource.New(config, apisource.Options{NodeName: a.NodeName})
	if err != nil {
		return none, fmt.Errorf("kubeconfig %s: %w", a.Kubeconfig, err)
	}
	return source.Tokens(), nil
}
