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
	maxAnswer = 1 << 20 // bytes of a plugin's standard output
	maxStderr = 1 << 10 // bytes of its standard error that become part of an error
)

// request is a CredentialProviderRequest.
type request struct {
	Kind                      string            `json:"kind"`
	APIVersion                string            `json:"apiVersion"`
	Image                     string            `json:"image"` // without tag and digest
	ServiceAccountToken       string            `json:"serviceAccountToken,omitempty"`
	ServiceAccountAnnotations map[string]string `json:"serviceAccountAnnotations,omitempty"`
}

// response is a CredentialProviderResponse.
type response struct {
	Kind          string    `json:"kind"`
	APIVersion    string    `json:"apiVersion"`
	CacheKeyType  string    `json:"cacheKeyType"`
	CacheDuration *Duration `json:"cacheDuration"`
	Auth          map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth"`
}

// The values of CacheKeyType: what else an answer is good for.
const (
	keyImage    = "Image"
	keyRegistry = "Registry"
	keyGlobal   = "Global"
)

// cached returns the key that an answer about a repository is kept under.
func (r *response) cached(repository, registry string) string {
	switch r.CacheKeyType {
	case keyRegistry:
		return registry
	case keyGlobal:
		return everything
	default:
		return repository
	}
}

// run runs the executable once. The errors hold nothing of its answer.
func (p *plugin) run(ctx context.Context, repository string, who identity) (response, error) {
	question, err := json.Marshal(request{
		Kind: "CredentialProviderRequest", APIVersion: p.spec.APIVersion, Image: repository,
		ServiceAccountToken: who.token, ServiceAccountAnnotations: who.annotations,
	})
	if err != nil {
		return response{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	stdout, stderr := plugincmd.Output{Max: maxAnswer}, plugincmd.Output{Max: maxStderr, Drop: true}
	cmd := exec.CommandContext(ctx, p.path, p.spec.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(question, '\n')), &stdout, &stderr
	cmd.Env = os.Environ()
	for _, e := range p.spec.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	cmd.WaitDelay = time.Second // for whoever left the process group and holds the output open
	// Who stays behind with the output open does not spoil a complete answer.
	if err := plugincmd.Run(cmd, false); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case stdout.Exceeded:
			err = errTooLong
		}
		said := strings.TrimSpace(string(stderr.Text))
		if who.token != "" {
			said = strings.ReplaceAll(said, who.token, "[token]")
		}
		return response{}, fmt.Errorf("run: %w: %q", err, said)
	}
	return p.decode(stdout.Text)
}

// decode reads an answer. The text of a JSON error would be a piece of it.
func (p *plugin) decode(data []byte) (r response, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if dec.Decode(&r) != nil {
		return response{}, errors.New("the answer is no CredentialProviderResponse")
	}
	switch {
	case r.Kind != "CredentialProviderResponse":
		return response{}, errors.New("the answer's kind is not CredentialProviderResponse")
	case r.APIVersion != p.spec.APIVersion:
		return response{}, fmt.Errorf("the answer's apiVersion is not %s", p.spec.APIVersion)
	case r.CacheKeyType != keyImage && r.CacheKeyType != keyRegistry && r.CacheKeyType != keyGlobal:
		return response{}, errors.New("the answer's cacheKeyType is neither Image nor Registry nor Global")
	}
	return r, nil
}

// errTooLong is why a plugin was ended.
var errTooLong = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
