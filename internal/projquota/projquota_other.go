// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(amd64 || arm64)

package projquota

import "errors"

func (p *Projects) limit(string, uint64) error {
	_ = p.start()
	return errors.ErrUnsupported
}

func usageOf(string) (Usage, error) { return Usage{}, errors.ErrUnsupported }

func projectOf(string) uint32 { return 0 }

func release(string, uint32) error { return errors.ErrUnsupported }
