/* Hermite polynomials of degree five. After lanes.c. */
#define FACTORS 6

/* Those of t from 0 to 1, and their derivatives. */
INLINE void place(REAL t, REAL *f, REAL *df)
{
    const REAL t2 = t * t, t3 = t2 * t, t4 = t2 * t2;
    f[0] = 1 + t3 * (-10 + t * (15 - 6 * t));
    f[1] = t + t3 * (-6 + t * (8 - 3 * t));
    f[2] = t2 * ((REAL)0.5 + t * ((REAL)-1.5 + t * ((REAL)1.5 - (REAL)0.5 * t)));
    f[3] = t3 * (10 + t * (-15 + 6 * t));
    f[4] = t3 * (-4 + t * (7 - 3 * t));
    f[5] = t3 * ((REAL)0.5 + t * (-1 + (REAL)0.5 * t));
    df[0] = -30 * t2 + 60 * t3 - 30 * t4;
    df[1] = 1 - 18 * t2 + 32 * t3 - 15 * t4;
    df[2] = t + (REAL)-4.5 * t2 + 6 * t3 - (REAL)2.5 * t4;
    df[3] = 30 * t2 - 60 * t3 + 30 * t4;
    df[4] = -12 * t2 + 28 * t3 - 15 * t4;
    df[5] = (REAL)1.5 * t2 - 4 * t3 + (REAL)2.5 * t4;
}
