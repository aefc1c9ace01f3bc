// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// A plugin with tokenAttributes gets tokens from the API server of the node; a node without a cluster refuses it.
func TestCredentialPluginWithTokensNeedsCluster(t *testing.T) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "plug"), []byte("#!/bin/sh\n"), 0o700))
	var config agent.Config
	config.Node.NodeName, config.Node.CredentialProviderBinDir = "n1", bin
	config.Node.CredentialProviders.Providers = []credential.PluginSpec{{
		Name: "plug", MatchImages: []string{"registry.test"}, APIVersion: "credentialprovider.kubelet.k8s.io/v1", DefaultCacheDuration: new(credential.Duration),
		TokenAttributes: &credential.TokenAttributes{
			ServiceAccountTokenAudience: "registry", CacheType: credential.CacheToken, RequireServiceAccount: new(bool),
		},
	}}
	options := agent.Options{Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{})}

	alone := options
	alone.Sources = []source.Source{source.Pods("code", nil)}
	_, err := agent.New(t.Context(), config, alone)
	require.ErrorContains(t, err, `provider "plug": tokenAttributes: tokens need an API server`)

	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	options.API = server.Config()
	_, err = agent.New(t.Context(), config, options)
	require.NoError(t, err)
}
