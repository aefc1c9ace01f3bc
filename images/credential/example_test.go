// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/images/credential"
)

// A program runs the credential provider plugins of the kubelet's configuration file for one image.
func ExampleNewPlugins() {
	dir, err := os.MkdirTemp("", "plugins")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	err = os.WriteFile(filepath.Join(dir, "cloud-login"), []byte(`#!/bin/sh
cat >/dev/null # the CredentialProviderRequest
echo '{
  "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
  "cacheKeyType": "Registry", "cacheDuration": "1h",
  "auth": {"*.cloud.example": {"username": "node", "password": "of today"}}
}'
`), 0o700)
	if err != nil {
		panic(err)
	}

	config, err := credential.ParsePluginConfig([]byte(`{
		"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
		"providers": [{
			"name": "cloud-login", "matchImages": ["*.cloud.example"], "defaultCacheDuration": "10m",
			"apiVersion": "credentialprovider.kubelet.k8s.io/v1"
		}]
	}`))
	if err != nil {
		panic(err)
	}
	// Accounts is for plugins with tokenAttributes: apiserver.Tokens.Accounts has one.
	plugins, err := credential.NewPlugins(config, credential.PluginOptions{BinDir: dir, Timeout: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	found, err := plugins.Credentials(context.Background(), "eu.cloud.example/team/app", credential.Pod{})
	fmt.Println(found[0].Username, found[0].Password, err)
	// Output: node of today <nil>
}
