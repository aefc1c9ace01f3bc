// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"

	"github.com/seed81659283/nodeagent/volume"
)

// errGitRepo is the error of the set-up of a gitRepo volume. Source: pkg/volume/git_repo/git_repo.go.
var errGitRepo = errors.New("git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`")

// gitRepo is the plugin for gitRepo volumes. Its set-up always fails, with the text of the kubelet, because Kubernetes has
// disabled them. An init container can clone a repository instead.
type gitRepo struct{}

// SetUp returns errGitRepo.
func (gitRepo) SetUp(context.Context, volume.Volume) (volume.Mount, error) {
	return volume.Mount{}, &volume.FinalError{Err: errGitRepo}
}

// TearDown does nothing.
func (gitRepo) TearDown(context.Context, volume.Volume) error { return nil }
