// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"

	"github.com/seed81659283/nodeagent/volume"
)

// errGitRepo is why no gitRepo volume is set up. Source: pkg/volume/git_repo/git_repo.go.
var errGitRepo = errors.New("git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`")

// gitRepo fails to set up volumes, with the kubelet's text: Kubernetes has disabled them for good. An init container can clone a repository.
type gitRepo struct{}

// SetUp fails.
func (gitRepo) SetUp(context.Context, volume.Volume) (volume.Mount, error) {
	return volume.Mount{}, &volume.FinalError{Err: errGitRepo}
}

// TearDown does nothing: nothing was set up.
func (gitRepo) TearDown(context.Context, volume.Volume) error { return nil }
