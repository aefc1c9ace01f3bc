// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/images/credential"
)

// fullConfig is a configuration with every field.
const fullConfig = `{
	"apiVersion": "kubelet.config.k8s.io/v1",
	"kind": "CredentialProviderConfig",
	"providers": [{
		"name": "ecr",
		"matchImages": ["*.dkr.ecr.*.amazonaws.com", "registry.io:8080/path"],
		"defaultCacheDuration": "12h",
		"apiVersion": "credentialprovider.kubelet.k8s.io/v1",
		"args": ["get-credentials"],
		"env": [{"name": "AWS_PROFILE", "value": "node"}],
		"tokenAttributes": {
			"serviceAccountTokenAudience": "sts",
			"cacheType": "ServiceAccount",
			"requireServiceAccount": true,
			"requiredServiceAccountAnnotationKeys": ["example.com/role"],
			"optionalServiceAccountAnnotationKeys": ["example.com/zone"]
		}
	}]
}`

func TestParsePluginConfig(t *testing.T) {
	c, err := credential.ParsePluginConfig([]byte(fullConfig))
	require.NoError(t, err)
	require.Len(t, c.Providers, 1)
	p := c.Providers[0]
	assert.Equal(t, "ecr", p.Name)
	assert.Equal(t, credential.Duration(12*time.Hour), *p.DefaultCacheDuration)
	assert.Equal(t, []credential.EnvVar{{Name: "AWS_PROFILE", Value: "node"}}, p.Env)
	assert.True(t, *p.TokenAttributes.RequireServiceAccount)
	assert.Equal(t, credential.CacheServiceAccount, p.TokenAttributes.CacheType)
}

func TestParsePluginConfigRefusesInvalidFields(t *testing.T) {
	for _, tt := range []struct{ old, replacement, want string }{
		{`"args"`, `"arguments"`, `unknown field "arguments"`},
		{`12h`, `12 hours`, "12 hours"},
		{`"12h"`, `12`, "cannot unmarshal number"},
		{`"CredentialProviderConfig"`, `"KubeletConfiguration"`, "kind:"},
		{`kubelet.config.k8s.io/v1"`, `kubelet.config.k8s.io/v2"`, "apiVersion:"},
		{`"ecr"`, `"../ecr"`, `provider "../ecr": name: "../ecr" is not`},
		{`"ecr"`, `".."`, "name:"},
		{`"ecr"`, `""`, "name:"},
		{`credentialprovider.kubelet.k8s.io/v1`, `v1`, `provider "ecr": apiVersion: "v1" is not`},
		{`["*.dkr.ecr.*.amazonaws.com", "registry.io:8080/path"]`, `[]`, "matchImages: there must be one"},
		{`registry.io:8080`, `registry.io:port`, `matchImages: "registry.io:port/path"`},
		{`"defaultCacheDuration": "12h",`, ``, "defaultCacheDuration: must be set"},
		{`12h`, `-1s`, "defaultCacheDuration: -1s is negative"},
		{`credentialprovider.kubelet.k8s.io/v1`, `credentialprovider.kubelet.k8s.io/v1beta1`, "tokenAttributes: not part of"},
		{`"sts"`, `""`, "tokenAttributes: serviceAccountTokenAudience: must be set"},
		{`"ServiceAccount"`, `"Pod"`, `tokenAttributes: cacheType: "Pod" is neither`},
		{`"requireServiceAccount": true,`, ``, "requireServiceAccount: must be set"},
		{`"requireServiceAccount": true`, `"requireServiceAccount": false`, "requireServiceAccount is false"},
		{`example.com/zone`, `example.com/role`, `"example.com/role" comes twice`},
		{`"example.com/zone"`, `""`, "one is empty"},
		{`example.com/zone`, `example.com/zone-`, `annotation keys: "example.com/zone-" is not the key`},
		{`example.com/role`, `example.com-/role`, `annotation keys: "example.com-/role" is not the key`},
	} {
		broken := strings.Replace(fullConfig, tt.old, tt.replacement, 1)
		require.NotEqual(t, fullConfig, broken)
		_, err := credential.ParsePluginConfig([]byte(broken))
		if assert.Error(t, err, tt.replacement) {
			assert.Contains(t, err.Error(), tt.want)
		}
	}
}

func TestValidateRefusesDuplicateNames(t *testing.T) {
	c, err := credential.ParsePluginConfig([]byte(fullConfig))
	require.NoError(t, err)
	c.Providers = append(c.Providers, c.Providers[0])
	require.ErrorContains(t, c.Validate(), `provider "ecr": name: there are two`)
}
