// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// bootstrappersGroup is the group of users with a bootstrap token.
const bootstrappersGroup = "system:bootstrappers"

// AllowBootstrap creates the role bindings that kubeadm creates for bootstrap tokens. A client with a bootstrap token may
// then request a client certificate for a node. The controller manager approves such requests and renewals.
func (a *Access) AllowBootstrap(ctx context.Context) error {
	for _, b := range []struct{ role, group string }{
		{"system:node-bootstrapper", bootstrappersGroup},
		{"system:certificates.k8s.io:certificatesigningrequests:nodeclient", bootstrappersGroup},
		{"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	} {
		if err := a.BindClusterRole(ctx, b.role, "Group", b.group); err != nil {
			return err
		}
	}
	return nil
}

// BindClusterRole grants a cluster role to the user or group with this name. kind is "User" or "Group".
func (a *Access) BindClusterRole(ctx context.Context, role, kind, name string) error {
	return a.Admin().Do(ctx, http.MethodPost, rbacPath+"/clusterrolebindings", map[string]any{
		"apiVersion": rbac + "/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]string{"name": strings.ToLower(strings.ReplaceAll("test:"+role+":"+name, "*", "all"))},
		"roleRef":  map[string]string{"apiGroup": rbac, "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]string{"apiGroup": rbac, "kind": kind, "name": name}},
	}, nil)
}

// CreateBootstrapToken creates the Secret of a new bootstrap token, and returns the token.
func (a *Access) CreateBootstrapToken(ctx context.Context) (string, error) {
	id, secret := strings.ToLower(rand.Text()[:6]), strings.ToLower(rand.Text()[:16])
	err := a.Admin().Do(ctx, http.MethodPost, "/api/v1/namespaces/kube-system/secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
		"metadata": map[string]string{"name": "bootstrap-token-" + id},
		"stringData": map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
		},
	}, nil)
	return id + "." + secret, err
}

// TokenKubeconfig writes a kubeconfig that authenticates with this token. It returns the path of the kubeconfig.
func (a *Access) TokenKubeconfig(token string) (path string, err error) {
	a.mu.Lock()
	a.files++
	base := filepath.Join(a.dir, fmt.Sprintf("token%d", a.files))
	a.mu.Unlock()
	text := fmt.Appendf(nil, tokenKubeconfig, base+"-ca.crt", a.url, token)
	for path, data := range map[string][]byte{base + "-ca.crt": a.ca.pem, base + ".conf": text} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return "", err
		}
	}
	return base + ".conf", nil
}

const tokenKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {certificate-authority: %q, server: %q}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
`
