// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
)

// way is an access to the container: a URL for each session, and a reader for its log.
type way interface {
	exec(ctx context.Context, stdin bool, command ...string) (string, error)
	forward(ctx context.Context) (string, error)
	log(ctx context.Context) (io.ReadCloser, error)
}

// bare is the floor: the runtime itself, and the log file.
type bare struct {
	runtime                  *cri.Client
	container, sandbox, file string
}

func (b bare) exec(ctx context.Context, stdin bool, command ...string) (string, error) {
	answer, err := b.runtime.Runtime.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: b.container, Cmd: command, Stdin: stdin, Stdout: true})
	return answer.GetUrl(), err
}

func (b bare) forward(ctx context.Context) (string, error) {
	answer, err := b.runtime.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: b.sandbox})
	return answer.GetUrl(), err
}

func (b bare) log(context.Context) (io.ReadCloser, error) { return os.Open(b.file) }

// served is the API of an agent at a URL.
type served struct {
	url    string
	client *http.Client
}

const of = "/default/" + mainPod + "-" + nodeName

func (s served) exec(_ context.Context, stdin bool, command ...string) (string, error) {
	q := url.Values{"command": command, "output": {"1"}}
	if stdin {
		q.Set("input", "1")
	}
	return s.url + "/exec" + of + "/main?" + q.Encode(), nil
}

func (s served) forward(context.Context) (string, error) { return s.url + "/portForward" + of, nil }

func (s served) log(ctx context.Context) (io.ReadCloser, error) {
	return s.get(ctx, "/containerLogs"+of+"/main")
}

// get returns the body of a page.
func (s served) get(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return nil, errors.Join(fmt.Errorf("GET %s: %s: %s", path, answer.Status, text), answer.Body.Close())
	}
	return answer.Body, nil
}
