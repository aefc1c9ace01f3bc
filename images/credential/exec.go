// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/plugincmd"
)

const (
	maxResponseBytes = 1 << 20 // limit of a plugin's standard output
	maxStderrBytes   = 1 << 10 // part of its standard error that is included in errors
)

// pluginRequest is the JSON input of a plugin, a CredentialProviderRequest.
type pluginRequest struct {
	Kind                      string            `json:"kind"`
	APIVersion                string            `json:"apiVersion"`
	Image                     string            `json:"image"` // without tag and digest
	ServiceAccountToken       string            `json:"serviceAccountToken,omitempty"`
	ServiceAccountAnnotations map[string]string `json:"serviceAccountAnnotations,omitempty"`
}

// pluginResponse is the JSON output of a plugin, a CredentialProviderResponse.
type pluginResponse struct {
	Kind          string    `json:"kind"`
	APIVersion    string    `json:"apiVersion"`
	CacheKeyType  string    `json:"cacheKeyType"`
	CacheDuration *Duration `json:"cacheDuration"`
	Auth          map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth"`
}

// The values of CacheKeyType: the repositories for which a cached response is valid.
const (
	cacheByImage    = "Image"
	cacheByRegistry = "Registry"
	cacheGlobally   = "Global"
)

// cacheKey returns the key under which the response is cached: the repository, its registry, or a key for all repositories.
func (r *pluginResponse) cacheKey(repository, registry string) string {
	switch r.CacheKeyType {
	case cacheByRegistry:
		return registry
	case cacheGlobally:
		return globalCacheKey
	default:
		return repository
	}
}

// runOnce runs the executable of the plugin for the repository and returns its response. account is the service account
// data for the plugin. Errors do not quote the response, which may contain passwords.
func (p *plugin) runOnce(ctx context.Context, repository string, account tokenIdentity) (pluginResponse, error) {
	input, err := json.Marshal(pluginRequest{
		Kind: "CredentialProviderRequest", APIVersion: p.spec.APIVersion, Image: repository,
		ServiceAccountToken: account.token, ServiceAccountAnnotations: account.annotations,
	})
	if err != nil {
		return pluginResponse{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	stdout, stderr := plugincmd.Output{Max: maxResponseBytes}, plugincmd.Output{Max: maxStderrBytes, Drop: true}
	cmd := exec.CommandContext(ctx, p.path, p.spec.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(input, '\n')), &stdout, &stderr
	cmd.Env = os.Environ()
	for _, e := range p.spec.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	cmd.WaitDelay = time.Second // for processes that left the process group and keep the output open
	// A complete response is valid even if a remaining process keeps the output open.
	if err := plugincmd.Run(cmd, false); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case stdout.Exceeded:
			err = errResponseTooLong
		}
		message := strings.TrimSpace(string(stderr.Text))
		if account.token != "" {
			message = strings.ReplaceAll(message, account.token, "[token]")
		}
		return pluginResponse{}, fmt.Errorf("run: %w: %q", err, message)
	}
	return p.decodeResponse(stdout.Text)
}

// decodeResponse decodes the output of the plugin, and checks its version and its fields. No error quotes the output,
// because it may contain passwords.
func (p *plugin) decodeResponse(data []byte) (decoded pluginResponse, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if dec.Decode(&decoded) != nil {
		return pluginResponse{}, errors.New("the answer is no CredentialProviderResponse")
	}
	switch {
	case decoded.Kind != "CredentialProviderResponse":
		return pluginResponse{}, errors.New("the answer's kind is not CredentialProviderResponse")
	case decoded.APIVersion != p.spec.APIVersion:
		return pluginResponse{}, fmt.Errorf("the answer's apiVersion is not %s", p.spec.APIVersion)
	case decoded.CacheKeyType != cacheByImage && decoded.CacheKeyType != cacheByRegistry && decoded.CacheKeyType != cacheGlobally:
		return pluginResponse{}, errors.New("the answer's cacheKeyType is neither Image nor Registry nor Global")
	}
	return decoded, nil
}

// errResponseTooLong is the error of a plugin that was killed because of its output.
var errResponseTooLong = fmt.Errorf("the answer is longer than %d bytes", maxResponseBytes)
