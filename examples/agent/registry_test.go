// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// password is the password of user "agent" for all registries of this test.
const password = "hunter2-of-the-agent"

// newRegistry starts a proxy of the lab's registry that requires a password, and returns its host and port.
func (n *node) newRegistry() string {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: n.lab.RegistryHost()})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, ok := r.BasicAuth(); !ok || user != "agent" || pass != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	n.t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// dockerConfig returns a Docker config with the password for a registry.
func dockerConfig(registry string) string {
	auth := base64.StdEncoding.EncodeToString([]byte("agent:" + password))
	return fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, registry, auth)
}

// imagePod is a pod that always pulls its image.
func imagePod(name, image string) string {
	return strings.Replace(podYAML(name, sleeper, "      imagePullPolicy: Always\n"), "nodeagent.test/busybox:1", image, 1)
}

// Images of registries with a password are pulled with a secret of the pod, a credential file of the node or a credential
// plugin. The file may be added later. Without credentials the pod waits with the reasons of the kubelet. No password is in
// the log.
func TestIntegrationCredentials(t *testing.T) {
	n, dir := newNode(t), t.TempDir()
	file, plugins := filepath.Join(dir, "config.json"), filepath.Join(dir, "plugins")
	bySecret, byFile, byPlugin, never := n.newRegistry(), n.newRegistry(), n.newRegistry(), n.newRegistry()
	n.objects.Write("default/secrets/pull.yaml", fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: pull, namespace: default}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: %q}
`, dockerConfig(bySecret)))
	require.NoError(t, os.Mkdir(plugins, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(plugins, "ask"), fmt.Appendf(nil, `#!/bin/sh
cat > %s/asked
echo '{"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
	"cacheKeyType": "Registry", "auth": {"%s": {"username": "agent", "password": "%s"}}}'
`, dir, byPlugin, password), 0o700))
	fields := map[string]any{
		"dockerConfigFiles":        []string{file},
		"credentialProviderBinDir": plugins,
		"credentialProviders": map[string]any{"providers": []map[string]any{{
			"name": "ask", "matchImages": []string{byPlugin}, "defaultCacheDuration": "1m",
			"apiVersion": "credentialprovider.kubelet.k8s.io/v1",
		}}},
	}
	n.manifests.Write("file.yaml", imagePod("file", byFile+"/busybox:1"))
	// The agent updates the waiting reason when it syncs the pod. The exit of another container causes a sync.
	beside := "  containers:\n    - {name: beside, image: 'nodeagent.test/busybox:1', command: [/bin/sleep, '2']}\n"
	n.manifests.Write("never.yaml", strings.Replace(imagePod("never", never+"/busybox:1"), "  containers:\n", beside, 1))
	a := n.start(fields)
	for _, pod := range []string{"file-n1", "never-n1"} {
		a.AwaitLine(timeout, "pod="+pod+" phase=Pending", "ErrImagePull")
		a.AwaitLine(timeout, "level=WARN", "pod="+pod, "ErrImagePull", "authorization failed")
	}
	a.AwaitLine(timeout, "pod=never-n1 phase=Pending", "ImagePullBackOff")

	// From now on the image has been pulled with a password, so that each pod needs one, by any name of the image.
	n.manifests.Write("secret.yaml", strings.Replace(imagePod("secret", bySecret+"/busybox:1"), "spec:", "spec:\n  imagePullSecrets: [{name: pull}]", 1))
	n.manifests.Write("plugin.yaml", imagePod("plugin", byPlugin+"/busybox:1"))
	a.AwaitLine(timeout, "pod=plugin-n1 phase=Running", `summary="1/1 restarts=0`)
	a.AwaitLine(timeout, "pod=secret-n1 phase=Running", `summary="1/1 restarts=0`)
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	require.NoError(t, err)
	require.Contains(t, string(asked), byPlugin+`/busybox"`)
	require.NotContains(t, a.Output(), "pod=file-n1 phase=Running")

	require.NoError(t, os.WriteFile(file, []byte(dockerConfig(byFile)), 0o600))
	a.AwaitLine(2*timeout, "pod=file-n1 phase=Running", `summary="1/1 restarts=0`) // after the back-off
	require.NotContains(t, a.Output(), "pod=never-n1 phase=Running")
	require.NotContains(t, a.Output(), password)

	// A restarted agent pulls no image for running pods. It has no record of the credentials in the removed file.
	before, _ := n.containers("file-n1")
	a.Kill()
	require.NoError(t, os.Remove(file))
	a = n.start(fields)
	a.AwaitLine(timeout, "pod=file-n1 phase=Running", `summary="1/1 restarts=0`)
	a.AwaitLine(timeout, "pod=never-n1 phase=Pending", "ErrImagePull")
	after, _ := n.containers("file-n1")
	require.Equal(t, before, after)
	n.drain(a)
}
