"""Staples of links, and layers that combine links and staples of several fields.

With U_mu(x) the link from x to x + mu, all paths of three links around it that share its ends are

    R_mu,nu(x) = S_nu(x) S_mu(x+nu) S_nu(x+mu)^dagger,
    L_mu,nu(x) = S_nu(x-nu)^dagger S_mu(x-nu) S_nu(x-nu+mu).

They transform as U_mu(x) does, so that links, R and L of several fields S may be added up.
"""

from pipeline_kernels.su3.staples.op import plaquette_staples, staple_layer

__all__ = ["plaquette_staples", "staple_layer"]
