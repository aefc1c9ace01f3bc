// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(amd64 || arm64)

package projquota

import "errors"

func (p *Projects) setLimit(string, uint64) error {
	_ = p.firstCandidate()
	return errors.ErrUnsupported
}

func usageOf(string) (Usage, error) { return Usage{}, errors.ErrUnsupported }

func projectOf(string) uint32 { return 0 }

func releaseProject(string, uint32) error { return errors.ErrUnsupported }
